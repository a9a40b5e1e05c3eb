// neuroncached. This file reads as the life of the process.
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/credentials.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/safe_path.hpp"
#include "cache/tier/mirror.hpp"
#include "daemon/cluster_door.hpp"
#include "daemon/detach.hpp"
#include "daemon/listener.hpp"
#include "daemon/maintenance.hpp"
#include "daemon/self_check.hpp"
#include "daemon/server.hpp"
#include "daemon/startup.hpp"
#include "daemon/tier_totals.hpp"

namespace nc::daemon {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Over TCP, too, when that is wanted. Should it not work, this host's own clients are served all
// the same.
void open_tcp(Service& service, Server& server, const Settings& settings) {
  if (settings.text("listen").empty()) return;
  service.gate =
      std::make_unique<Gate>(real_filesystem(), service.clock, settings.text("listen_tokens"));
  auto opened = TcpListener::open(real_filesystem(), service.clock, tcp_options(settings),
                                  [&server](UniqueFd socket, std::shared_ptr<const Remote> remote) {
                                    return server.adopt(std::move(socket), std::move(remote));
                                  });
  if (!opened.ok()) {
    service.listen_problem = opened.error().text();
    return log::error("daemon", "no service over TCP: {}", service.listen_problem);
  }
  service.listener = std::move(*opened);
  log::info("daemon", "serving at {}, too, {}", service.listener->bound(),
            settings.boolean("listen_plain") ? "in plain text" : "with TLS");
}

// ok also when another daemon serves already.
Status serve(const Options& options, Settings loaded, Starter& starter) {
  const pid_t parent = ::getppid();
  FileSystem& fs = real_filesystem();
  Clock& clock = system_clock();
  NC_TRY(open_log(loaded));

  // Our place: the socket that systemd hands over, else the one that we take.
  std::optional<gid_t> group;
  if (const std::string& name = loaded.text("socket_group"); !name.empty()) {
    NC_ASSIGN(group, find_group(name));
  }
  NC_TRY(check_safe_dir(loaded.text("dir")));
  NC_ASSIGN(auto listener, inherited_listener());
  std::optional<Place> place;
  if (!listener) {
    Place::Options at{loaded.text("socket"), !options.exit_with_parent};
    at.group = group;
    NC_ASSIGN(place, Place::take(fs, clock, at));
    if (!place) {
      log::info("daemon", "another one answers at {} already", loaded.text("socket"));
      starter.ready();
      return {};
    }
  }

  NC_ASSIGN(auto store, Store::open(store_options(loaded), {fs, clock, system_random()}));
  LiveSettings settings(std::move(loaded));
  const Settings initial = settings.copy();
  const bool read_only = initial.boolean("read_only");
  LeaseTable leases(clock, system_random(), {});
  LeaseKeeper keeper({leases, *store, system_processes(), clock}, !read_only);
  DiskPool pool(static_cast<std::size_t>(initial.integer("disk_threads")));
  Service service(*store, leases, keeper, settings, pool, clock, system_processes());
  service.trust = trust::make_policy(fs, clock, trust_options(initial));
  service.store_path = initial.text("dir");
  service.host = host_name();
  service.read_only = read_only;
  service.pid = ::getpid();
  service.started_ms = clock.wall_ms();
  NC_TRY(service.buckets.restore());
  NC_TRY(keeper.restore());
  NC_TRY(service.builds.restore(leases, initial, !read_only));
  NC_TRY(service.work.restore(leases, !read_only));
  NC_TRY(service.outcomes.restore(!read_only));
  std::vector<TierDesk::Problem> problems;
  auto chain = open_chain(initial, *store, *service.trust, read_only, problems);
  Builder self{{}, service.host};
  self.process.pid = ::getpid();
  service.tiers.open(std::move(chain), std::move(problems), std::move(self));
  TierTotals tier_totals(*store);
  if (!read_only) {
    NC_TRY(service.tiers.restore());
    NC_TRY(tier_totals.restore(service.tiers.chain()));
  }
  NC_TRY(service.guest_leases.restore());
  service.cluster = open_cluster(service, initial);
  if (service.cluster) NC_TRY(service.cluster->restore());
  service.jobs = open_cluster_jobs(service, initial);
  // Before the keeper's thread, which must not outlive what follows it.
  if (!listener) {
    NC_ASSIGN(listener, place->listen());
  }
  NC_TRY(keeper.start());
  service.tiers.start();
  if (service.tiers.any()) service.tiers.post([&service] { service.tiers.chain().greet(); });
  if (service.cluster) service.cluster->start();
  const std::string at = bound_path(listener->get());
  Server server(service, std::move(*listener),
                {static_cast<std::size_t>(initial.integer("io_threads")),
                 static_cast<std::uint64_t>(initial.integer("max_connections")), group});
  open_tcp(service, server, initial);
  settings.subscribe([&](const Settings& now) {
    server.set_request_timeout(millis(now, "request_timeout"));
    leases.set_lease_ttl(millis(now, "lease_ttl"));
    store->set_limits(store_options(now));
    service.builds.configure(now);
    service.work.configure(now);
    service.outcomes.configure(now);
    if (service.cluster) service.cluster->set_wait(millis(now, "cluster_wait"));
    if (auto level = log::parse_level(now.text("log_level")); level.ok()) log::set_level(*level);
  });

  const auto leave_when_idle = [&] {
    const Millis limit = millis(settings.copy(), "idle_exit");
    const Millis since = server.idle_since();
    if (service.listener || limit <= 0 || since == 0 || leases.leases() > 0) return;
    if (service.tiers.busy()) return;
    if (clock.monotonic_ms() - since < limit) return;
    log::info("daemon", "nobody was here for {} s: leaving", limit / 1000);
    server.shut_down(0);
  };
  const auto leave_with_parent = [&] {
    if (options.exit_with_parent && ::getppid() != parent) server.shut_down(0);
  };
  const auto stop_listening = [&] {
    notify_manager("STOPPING=1");
    if (service.listener) service.listener->stop_accepting();
    if (place) place->leave();
  };
  const auto reload = [&] {
    ignore_error(open_log(settings.copy()), "the old log goes on");
    auto fresh = read_settings(options);
    if (!fresh.ok()) {
      return log::error("daemon", "settings are not reloaded: {}", fresh.error().text());
    }
    for (const auto& name : settings.reload(*fresh)) {
      log::warn("daemon", "{} changes with the next start", name);
    }
    if (service.listener) {
      if (Status read = service.listener->reload(); !read.ok()) {
        log::error("daemon", "the old certificate stays in use: {}", read.error().text());
      }
    }
    log::info("daemon", "log reopened, settings reloaded");
  };

  const auto write_buckets = [&] {
    if (read_only) return;
    if (Status written = service.buckets.write(); !written.ok()) {
      log::debug("buckets", "sizes are not written yet: {}", written.error().text());
    }
  };
  const auto write_tier_totals = [&] {
    if (read_only) return;
    if (Status written = tier_totals.write(service.tiers.chain()); !written.ok()) {
      log::debug("tiers", "counters are not written yet: {}", written.error().text());
    }
  };
  const auto forget_old_work = [&, next = Millis{0}]() mutable {
    constexpr Millis kPauseMs = 60'000;
    if (clock.monotonic_ms() < next) return;
    next = clock.monotonic_ms() + kPauseMs;
    service.work.maintain();
    service.outcomes.maintain();
    service.guest_leases.forget_old();
  };
  Status served;
  {
    const auto look_at_tokens = [&] {
      if (service.gate) service.gate->refresh();
    };
    const auto settle_jobs = [&, busy = std::make_shared<std::atomic<bool>>(false)] {
      if (!service.jobs || !service.jobs->unsettled() || busy->exchange(true)) return;
      const bool posted = service.tiers.post([&service, busy] {
        guarded("the cluster's queue", [&service] { service.jobs->settle(); });
        *busy = false;
      });
      if (!posted) *busy = false;
    };
    Maintenance maintenance({[&] { store->maintain(); }, write_buckets, forget_old_work,
                             look_at_tokens, [&] { service.tiers.tick(); }, settle_jobs,
                             write_tier_totals, leave_when_idle, leave_with_parent});
    log::info("daemon", "neuroncached {} serves {} at {}", NC_VERSION, service.store_path, at);
    starter.ready();
    notify_manager("READY=1");
    served = server.run(stop_listening, reload);
  }
  if (service.cluster) service.cluster->stop();
  service.tiers.stop();
  pool.stop();
  service.listener.reset();
  keeper.stop();
  write_buckets();
  write_tier_totals();
  if (Status flushed = store->flush(); !flushed.ok()) {
    log::error("daemon", "the last flush failed: {}", flushed.error().text());
  }
  log::info("daemon", "bye");
  return served;
}

// Not a daemon's life at all: engines are ours, so `neuroncache import` has us copy.
int copy_bucket(const Options& options, Starter& starter) {
  const auto copied = tier::mirror_bucket(options.copy_bucket, options.into);
  if (!copied.ok()) return starter.failed(copied.error().text()), kFailed;
  fmt::print(stderr, "copied {} objects, {}; {} left out whose names are no paths\n",
             copied->objects, format_size(copied->bytes), copied->left_out);
  return 0;
}

int run(std::span<char* const> arguments) {
  hide_memory();
  prepare_process();
  Starter starter;
  const std::vector<const char*> words(arguments.begin(), arguments.end());
  auto options = parse_options(words);
  hide_credentials(arguments);
  if (!options.ok()) return starter.failed(options.error().text()), kUsage;
  if (options->help) return std::fputs(help_text().c_str(), stdout), 0;
  if (options->version) return std::puts("neuroncached " NC_VERSION), 0;
  if (!options->copy_bucket.empty()) return copy_bucket(*options, starter);
  auto settings = read_settings(*options);
  if (!settings.ok()) return starter.failed(settings.error().text()), kUsage;

  if (options->check) {
    log::set_level(log::Level::kError);
    return std::puts(to_json(check_all(*settings, real_filesystem(), system_clock())).c_str()), 0;
  }

  if (options->detach) starter = Starter::detach();
  const bool own_log = !settings->text("log_file").empty();
  Status served = serve(*options, std::move(*settings), starter);
  if (served.ok()) return 0;
  if (own_log) log::error("daemon", "cannot go on: {}", served.error().text());
  return starter.failed(served.error().text()), kFailed;
}

}  // namespace
}  // namespace nc::daemon

int main(int argc, char** argv) {
  return nc::daemon::run({argv + 1, static_cast<std::size_t>(argc - 1)});
}
