// Every setting there is. Change a row here and `./x lint` tells which documents must follow.
#include "base/settings.hpp"

namespace nc {
namespace {

using T = SettingType;

constexpr SettingSpec kTable[] = {
    {"dir", T::kPath, "", "", false, "all",
     "The local store. Unset: $XDG_CACHE_HOME/neuroncache, else ~/.cache/neuroncache."},
    {"socket", T::kPath, "", "", false, "all",
     "The daemon's Unix socket. Unset: $XDG_RUNTIME_DIR/neuroncache/daemon.sock, else "
     "/tmp/neuroncache-<uid>/daemon.sock."},
    {"socket_group", T::kString, "", "", false, "daemon",
     "A group whose members may use the socket, too: look up, build and store, but not administer. "
     "Unset: nobody but the daemon's user and root."},
    {"listen", T::kString, "", "", false, "daemon",
     "Serve over TCP as well, at this address and port: 10.0.0.7:8443. Unset: no."},
    {"listen_cert", T::kPath, "", "", false, "daemon",
     "Certificate of the TCP listener with its chain, PEM."},
    {"listen_key", T::kPath, "", "", false, "daemon",
     "The certificate's private key, PEM without a passphrase."},
    {"listen_client_ca", T::kPath, "", "", false, "daemon",
     "Let only clients in over TCP that have a certificate of this authority, PEM."},
    {"listen_tokens", T::kPath, "", "", false, "all",
     "Who may come in over TCP, and for what. Unset: tokens beside the settings file."},
    {"listen_plain", T::kBool, "false", "", false, "daemon",
     "Serve TCP without TLS; on loopback addresses only."},
    {"namespace", T::kString, "default", "", false, "all",
     "The tenant that look-ups and entries of this process are counted under."},
    {"read_only", T::kBool, "false", "", false, "daemon", "Serve what is there and store nothing."},
    {"max_bytes", T::kSize, "", "", true, "daemon",
     "Bound on the store's bytes. Unset: 10 % of the disk, at most 50 GiB."},
    {"max_entries", T::kInt, "1000000", "1..100000000", true, "daemon",
     "Bound on the number of entries."},
    {"min_free", T::kSize, "256MiB", "", true, "daemon",
     "Uploads are refused when they would leave less free disk than this."},
    {"max_blob", T::kSize, "16GiB", "", true, "daemon", "Largest single blob that is accepted."},
    {"namespace_quota", T::kQuotas, "", "", true, "daemon",
     "Bytes per namespace, as name=size,name=size. Over its quota a namespace evicts its own."},
    {"failure_ttl", T::kDuration, "1h", "0s..30d", true, "daemon",
     "How long a deterministic failure is replayed."},
    {"lease_ttl", T::kDuration, "15s", "1s..10m", true, "daemon",
     "A builder that sends no heartbeat for this long loses its lease."},
    {"build_memory", T::kSize, "", "", true, "daemon",
     "Memory that admitted builds may be expected to take together. Unset: 80 % of what the host "
     "has free."},
    {"build_cores", T::kInt, "0", "0..1048576", true, "daemon",
     "Cores that admitted builds may take together. 0: all."},
    {"build_memory_guess", T::kSize, "", "", true, "daemon",
     "What a build of which nothing is known is expected to take. Unset: by input size for "
     "neuronx-cc, else 2GiB."},
    {"build_timeout", T::kDuration, "0s", "0s..30d", true, "daemon",
     "A compiler that runs for longer is ended. 0s: never."},
    {"cancel_unwanted", T::kBool, "false", "", true, "daemon",
     "End a build that runs for others only once none of them waits any more."},
    {"recordings_bytes", T::kSize, "4GiB", "", true, "daemon",
     "Inputs of recorded actions that are kept; what was recorded longest ago goes first."},
    {"recordings_ttl", T::kDuration, "30d", "1m..3650d", true, "daemon",
     "How long a recorded action is kept after it was recorded last."},
    {"orphan_grace", T::kDuration, "1h", "0s..30d", true, "daemon",
     "How long a blob that no entry names is kept."},
    {"compression", T::kBool, "true", "", true, "daemon",
     "Compress blobs with zstd where it pays."},
    {"io_threads", T::kInt, "2", "1..64", false, "daemon", "Threads that serve sockets."},
    {"disk_threads", T::kInt, "4", "1..256", false, "daemon", "Threads that hash, read and write."},
    {"max_connections", T::kInt, "4096", "8..100000", false, "daemon",
     "Connections over this are answered 503 and closed."},
    {"request_timeout", T::kDuration, "30s", "1s..10m", true, "daemon",
     "A request that is not complete by then is dropped (a blob body: no byte for that long)."},
    {"idle_exit", T::kDuration, "30m", "0s..30d", true, "daemon",
     "Leave after this long without a client. 0s: never."},
    {"drain", T::kDuration, "30s", "0s..10m", true, "daemon",
     "How long running requests may take after SIGTERM."},
    {"tiers", T::kAddresses, "", "", false, "daemon",
     "Shared places that are asked for what is not here, and get what is built here: s3://, "
     "file://, redis://, https:// addresses with their options (docs/tiers.md)."},
    {"cluster_leases", T::kString, "auto", "", false, "daemon",
     "Which of the tiers says who of all hosts builds what. auto: the first that can; off: each "
     "host builds for itself; else a tier's address as `neuroncache tiers` shows it."},
    {"cluster_lease_period", T::kDuration, "60s", "1s..1h", false, "daemon",
     "A host that has not renewed its lease for this long is taken for dead by the others."},
    {"cluster_wait", T::kDuration, "0s", "0s..30d", true, "daemon",
     "Build here after waiting this long for another host. 0s: wait as long as it builds."},
    {"trust", T::kChoice, "signed", "signed|any", false, "daemon",
     "Whose entries are believed when they come from outside of this host. signed: those signed "
     "with a key of the keyring; any: everybody's, so that whoever can write there can run code "
     "here."},
    {"trust_keys", T::kPath, "", "", false, "all",
     "The keyring: the keys that are believed, and for what. Unset: trusted_keys beside the "
     "settings file."},
    {"sign_key", T::kPath, "", "", false, "all",
     "The private key that signs what leaves this host. Unset: sign.key beside the settings "
     "file."},
    {"log_level", T::kChoice, "info", "trace|debug|info|warn|error|off", true, "all",
     "How much is logged."},
    {"log_file", T::kPath, "", "", false, "daemon",
     "Where the daemon logs. Unset: <dir>/daemon.log when started by a client, else standard "
     "error."},
    {"daemon_path", T::kPath, "", "", false, "all",
     "The neuroncached to start. Unset: beside the caller's own files, else on PATH."},
    {"autostart", T::kBool, "true", "", false, "all",
     "Start the daemon when it is needed and not there."},
    {"connect_timeout", T::kDuration, "5s", "10ms..5m", false, "all",
     "How long to wait for the daemon to answer or to start."},
    {"wait_timeout", T::kDuration, "0s", "0s..30d", false, "all",
     "Build without the cache after waiting this long for another builder. 0s: wait as long as it "
     "lives."},
    {"real_cc", T::kPath, "", "", false, "client",
     "The neuronx-cc behind the wrapper. Unset: the next one on PATH."},
    {"progress", T::kChoice, "auto", "auto|on|off", false, "client",
     "Whether the neuronx-cc wrapper says whom it waits for. auto: on a terminal."},
    {"record", T::kString, "", "", false, "all",
     "Name of a recording: what is looked up is noted under it with its outcome, and neuronx-cc "
     "commands are kept with all that is needed to run them again. NAME~RUN keeps the outcomes of "
     "one run apart."},
    {"record_inputs", T::kBool, "true", "", false, "client",
     "Whether `record` keeps the inputs of neuronx-cc commands, or only their outcomes."},
    {"retry_failed", T::kBool, "false", "", false, "client",
     "The neuronx-cc wrapper compiles again what is remembered as failed."},
    {"cpu_class", T::kChoice, "auto", "auto|x86-64-v3|x86-64-v4", false, "shim",
     "The CPU class that compiled kernels are built for."},
    {"bucketing", T::kChoice, "auto", "auto|on|off", false, "shim",
     "Run graphs with open sizes on a few padded ones. auto: for static_backends; on: for "
     "inductor, "
     "too."},
    {"static_backends", T::kString, "neuron", "", false, "shim",
     "Names of the backends, separated by commas, that compile graphs of fixed sizes only."},
    {"autograd_backends", T::kString, "", "", false, "shim",
     "Those of static_backends that differentiate a graph themselves: they get padded forward "
     "graphs only, and autograd goes through what they return."},
    {"max_buckets", T::kInt, "16", "1..1024", false, "shim",
     "Most buckets that one dimension of a graph gets."},
    {"max_waste", T::kString, "0", "", false, "shim",
     "Have as many buckets, up to max_buckets, as keep padding within this share of the unpadded "
     "cost (0.25: a quarter). 0: as many as repay the price of building them."},
    {"job", T::kString, "", "", false, "shim",
     "Name of this run of a distributed program, equal on all its ranks: they have one plan of "
     "buckets. Unset: torchrun's or Slurm's."},
    {"verify", T::kChoice, "first", "off|first|sample", false, "shim",
     "Compare padded with exact results on the user's data. first: a bucket's first call, where "
     "the "
     "plan has operators that are not proven yet; sample: some calls of all."},
    {"padded_random", T::kChoice, "strict", "strict|statistical", false, "shim",
     "Whether graphs that draw random numbers of padded sizes may be padded: the numbers are then "
     "others, of the same distribution."},
    {"strict", T::kBool, "false", "", false, "shim",
     "For tests: raise instead of falling back to stock torch.compile."},
};

}  // namespace

std::span<const SettingSpec> setting_table() {
  return kTable;
}

}  // namespace nc
