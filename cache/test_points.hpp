// The named points that the store passes (base/test_point.hpp); tests kill the process or fail at
// each of them.
#pragma once

#include <string_view>

namespace nc::points {

// Upload: written and synced aside / under its name / its record is written.
inline constexpr char kUploadCreated[] = "upload.created";
inline constexpr char kPublishStaged[] = "publish.staged";
inline constexpr char kPublishRenamed[] = "publish.renamed";
inline constexpr char kUploadRecorded[] = "upload.recorded";
// Publish: all blobs are known / the batch is durable.
inline constexpr char kPublishBeforeCommit[] = "publish.before_commit";
inline constexpr char kPublishAfterCommit[] = "publish.after_commit";
// Eviction: chosen / committed / the file is about to go / is gone.
inline constexpr char kEvictBeforeIndex[] = "evict.before_index";
inline constexpr char kEvictAfterIndex[] = "evict.after_index";
inline constexpr char kEvictBeforeUnlink[] = "evict.before_unlink";
inline constexpr char kEvictAfterUnlink[] = "evict.after_unlink";
// Prune: planned / entries committed / orphans swept.
inline constexpr char kPrunePlanned[] = "prune.planned";
inline constexpr char kPruneAfterIndex[] = "prune.after_index";
inline constexpr char kPruneSwept[] = "prune.swept";
// Damage: about to be moved / moved / its entries are gone.
inline constexpr char kQuarantineBefore[] = "quarantine.before";
inline constexpr char kQuarantineMoved[] = "quarantine.moved";
inline constexpr char kQuarantineDone[] = "quarantine.done";
// Open: locked / STORE written / staging emptied / index open / entries loaded.
inline constexpr char kOpenLocked[] = "open.locked";
inline constexpr char kOpenMarked[] = "open.marked";
inline constexpr char kOpenStagingEmptied[] = "open.staging_emptied";
inline constexpr char kOpenIndexOpened[] = "open.index_opened";
// A damaged index: the new one is complete / the old one is out of the way / the new one is in its
// place.
inline constexpr char kOpenIndexMade[] = "open.index_made";
inline constexpr char kOpenIndexAside[] = "open.index_aside";
inline constexpr char kOpenIndexReplaced[] = "open.index_replaced";
inline constexpr char kOpenLoaded[] = "open.loaded";
// Maintenance: before and after writing counters and uses.
inline constexpr char kMaintainBeforeWrite[] = "maintain.before_write";
inline constexpr char kMaintainAfterWrite[] = "maintain.after_write";

inline constexpr std::string_view kAll[] = {
    kUploadCreated,       kPublishStaged,      kPublishRenamed,     kUploadRecorded,
    kPublishBeforeCommit, kPublishAfterCommit, kEvictBeforeIndex,   kEvictAfterIndex,
    kEvictBeforeUnlink,   kEvictAfterUnlink,   kPrunePlanned,       kPruneAfterIndex,
    kPruneSwept,          kQuarantineBefore,   kQuarantineMoved,    kQuarantineDone,
    kOpenLocked,          kOpenMarked,         kOpenStagingEmptied, kOpenIndexOpened,
    kOpenIndexMade,       kOpenIndexAside,     kOpenIndexReplaced,  kOpenLoaded,
    kMaintainBeforeWrite, kMaintainAfterWrite};

}  // namespace nc::points
