// What the handlers work with. Everything in it outlives every request.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "cache/store.hpp"
#include "cache/trust/policy.hpp"
#include "daemon/access.hpp"
#include "daemon/bucket_book.hpp"
#include "daemon/builds.hpp"
#include "daemon/cluster.hpp"
#include "daemon/cluster_jobs.hpp"
#include "daemon/disk_pool.hpp"
#include "daemon/guest_leases.hpp"
#include "daemon/hit_memo.hpp"
#include "daemon/http.hpp"
#include "daemon/lease_keeper.hpp"
#include "daemon/leases.hpp"
#include "daemon/live_settings.hpp"
#include "daemon/outcomes.hpp"
#include "daemon/tcp_listener.hpp"
#include "daemon/tier_desk.hpp"
#include "daemon/unstored.hpp"
#include "daemon/work.hpp"

namespace nc::daemon {

// What stats() last found out about the kinds of entries.
struct KindsMemo {
  struct Sums {
    std::uint64_t entries = 0, bytes = 0, build_ms = 0;
  };
  Mutex mutex;
  bool known NC_GUARDED_BY(mutex) = false;
  std::uint64_t entries NC_GUARDED_BY(mutex) = 0;
  std::uint64_t bytes NC_GUARDED_BY(mutex) = 0;
  Millis at_ms NC_GUARDED_BY(mutex) = 0;
  Millis cost_ms NC_GUARDED_BY(mutex) = 0;
  std::map<std::string, Sums> kinds NC_GUARDED_BY(mutex);
};

struct Service {
  Service(Store& s, LeaseTable& l, LeaseKeeper& k, LiveSettings& live, DiskPool& p, Clock& c,
          Processes& procs, MemoryDoor& memory = host_memory_door())
      : store(s),
        leases(l),
        keeper(k),
        settings(live),
        pool(p),
        clock(c),
        processes(procs),
        builds(s, c, memory),
        work(s, c),
        outcomes(s, c) {
    keeper.add_follower(builds);
    keeper.add_follower(work);
  }

  Store& store;
  LeaseTable& leases;
  LeaseKeeper& keeper;
  LiveSettings& settings;
  DiskPool& pool;
  Clock& clock;
  Processes& processes;

  Builds builds;
  Work work;
  Outcomes outcomes;
  TierDesk tiers{{store, leases, keeper, clock}};

  std::unique_ptr<Gate> gate;  // who may come in over TCP; null: nobody
  std::unique_ptr<TcpListener> listener;
  std::string listen_problem;            // why there is none although there should be
  std::unique_ptr<trust::Policy> trust;  // who is believed beyond this host; null in tests

  GuestLeases guest_leases{store, clock};
  // Nothing: builds of other hosts are not looked at.
  std::unique_ptr<Cluster> cluster;
  // Nothing: there is no tier that holds a queue of builds.
  std::unique_ptr<ClusterJobs> jobs;

  std::string store_path;
  std::string host;
  bool read_only = false;
  std::int64_t pid = 0;
  Millis started_ms = 0;

  HitMemo hits{clock};
  Unstored unstored{clock};
  BucketBook buckets{store, clock};
  KindsMemo kinds;
  std::atomic<std::uint64_t> connections{0};
  std::atomic<bool> draining{false};
  std::function<void(Millis drain_ms)> shut_down;  // returns at once
};

// One request on its way through a handler.
struct Call {
  HttpRequest request;
  Reply reply;
};

// ---- Look-ups and builds (acquire.cpp) ----
void acquire(Service& service, Call call);
// The same from memory alone, on the thread that asks; nothing: it takes the way above.
std::optional<HttpResponse> acquire_now(Service& service, const HttpRequest& request);

// ---- Entries as they are published and read (actions.cpp) ----
HttpResponse get_action(Service& service, const HttpRequest& request);
HttpResponse put_action(Service& service, const HttpRequest& request);

// ---- Blobs (blobs.cpp) ----
HttpResponse get_blob(Service& service, const HttpRequest& request);
HttpResponse check_blob(Service& service, const HttpRequest& request);
HttpResponse head_blob(Service& service, const HttpRequest& request);
Result<std::unique_ptr<BodySink>> put_blob(Service& service, const HttpRequest& request);

// ---- Leases (lease_handlers.cpp) ----
HttpResponse heartbeat(Service& service, const HttpRequest& request);
void fail_lease(Service& service, Call call);
void release_lease(Service& service, Call call);
HttpResponse list_leases(Service& service, const HttpRequest& request);
HttpResponse bypass(Service& service, const HttpRequest& request);

// Whoever asks for a lease builds: the process at the other end.
Builder builder_of(Service& service, const HttpRequest& request);
// As heartbeat() does: the lease is held, known again, and its time starts anew; false: it is lost.
bool keep_lease(Service& service, const HttpRequest& request, const std::string& id,
                const ActionKey& key, std::uint64_t fence, const std::string& progress);

// ---- Leases that other hosts keep here (guest_lease_handlers.cpp) ----
HttpResponse get_guest_lease(Service& service, const HttpRequest& request);
HttpResponse put_guest_lease(Service& service, const HttpRequest& request);
HttpResponse remove_guest_lease(Service& service, const HttpRequest& request);

// ---- Builds (build_handlers.cpp) ----
void admit(Service& service, Call call);
HttpResponse list_builds(Service& service, const HttpRequest& request);

// ---- Recorded actions and their queue (work_handlers.cpp) ----
HttpResponse record_action(Service& service, const HttpRequest& request);
HttpResponse record_lost(Service& service, const HttpRequest& request);
HttpResponse get_recorded(Service& service, const HttpRequest& request);
HttpResponse list_recordings(Service& service, const HttpRequest& request);
HttpResponse list_recorded(Service& service, const HttpRequest& request);
HttpResponse forget_recording(Service& service, const HttpRequest& request);
HttpResponse enqueue_work(Service& service, const HttpRequest& request);
HttpResponse list_queue(Service& service, const HttpRequest& request);
HttpResponse clear_queue(Service& service, const HttpRequest& request);
// What the body of a request to queue something names, recorded here. Blocks on the disk.
struct ChosenAction {
  ActionKey key;
  std::string label, compiler;
  bool lost = false;  // it cannot be built again
};
Result<std::vector<ChosenAction>> chosen_actions(Service& service, const HttpRequest& request);

// ---- Jobs for workers (take_job.cpp), and the cluster's queue of them (cluster_queue.cpp) ----
void take_work(Service& service, Call call);
void enqueue_in_cluster(Service& service, Call call);
void list_cluster_queue(Service& service, Call call);
void clear_cluster_queue(Service& service, Call call);
// Whether there is such a queue, and the caller is the daemon's own user.
Status may_use_cluster_queue(Service& service, const HttpRequest& request);

// ---- What became of the actions of a recording (outcome_handlers.cpp) ----
HttpResponse list_outcomes(Service& service, const HttpRequest& request);
HttpResponse move_outcomes(Service& service, const HttpRequest& request);
HttpResponse forget_outcomes(Service& service, const HttpRequest& request);

// ---- Sizes seen and buckets planned (bucket_handlers.cpp) ----
HttpResponse observe_sizes(Service& service, const HttpRequest& request);
HttpResponse plan_buckets(Service& service, const HttpRequest& request);
HttpResponse list_buckets(Service& service, const HttpRequest& request);

// ---- Padding plans (padding_handler.cpp) ----
HttpResponse plan_padding(Service& service, const HttpRequest& request);

// ---- Shared tiers (tier_handlers.cpp) ----
HttpResponse list_tiers(Service& service, const HttpRequest& request);
void push_entries(Service& service, Call call);
void pull_entries(Service& service, Call call);
void prune_tier(Service& service, Call call);
void verify_tier(Service& service, Call call);
void collect_tier(Service& service, Call call);

// ---- Administration (admin.cpp, entries.cpp) ----
HttpResponse hello(Service& service, const HttpRequest& request);
HttpResponse stats(Service& service, const HttpRequest& request);
HttpResponse get_config(Service& service, const HttpRequest& request);
HttpResponse set_config(Service& service, const HttpRequest& request);
HttpResponse shut_down(Service& service, const HttpRequest& request);
HttpResponse misses(Service& service, const HttpRequest& request);
HttpResponse list_entries(Service& service, const HttpRequest& request);
HttpResponse get_entry(Service& service, const HttpRequest& request);
HttpResponse prune(Service& service, const HttpRequest& request);
HttpResponse verify(Service& service, const HttpRequest& request);
HttpResponse pin(Service& service, const HttpRequest& request);

}  // namespace nc::daemon
