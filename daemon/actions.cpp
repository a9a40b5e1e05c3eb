// Entries: the commit point of a build, and reading one without side effects.
#include "base/log.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

// What comes over the network has to be signed like what comes from a shared tier.
Status accept_from(Service& service, const Rights& rights, const Manifest& manifest) {
  NC_TRY(rights.may(manifest.name_space));
  if (!rights.remote) return {};
  if (!service.trust) return Error{Code::kDenied, "nobody is believed here", ""};
  return service.trust->check(manifest, rights.who);
}

// Before an entry of this host's own user is stored. What was built here is signed at once, for
// those who ask for it over TCP; without a key, or one that may write there, it stays unsigned and
// this host alone uses it. Who imports a file vouches for it: the signature of a stranger, which
// would keep this host from using it, goes. That of a revoked key stays, and it with it unused.
void sign_ours(Service& service, Manifest& manifest, bool import) {
  if (!service.trust) return;
  if (!import) {
    if (!manifest.signature.empty()) return;
    ignore_error(service.trust->sign(manifest), "the tiers count what could not be signed");
  } else if (!manifest.signature.empty() && !service.trust->disowns(manifest) &&
             !service.trust->serves(manifest, manifest.name_space, "an import").ok()) {
    manifest.signature.clear();
  }
}

// As Store::publish(). An entry that nobody believes any more, or whose signer may not write this
// namespace, would otherwise stay for ever, and the key be built at each look-up.
Result<bool> publish(Service& service, const Manifest& manifest) {
  auto published = service.store.publish(manifest);
  if (!published.ok() || *published || !service.trust) return published;
  NC_ASSIGN(const auto there, service.store.peek(manifest.key));
  if (!there || there->signature.empty() ||
      service.trust->serves(*there, manifest.name_space, "the local store").ok()) {
    return published;
  }
  NC_TRY(service.store.replace(manifest));
  return true;
}

}  // namespace

HttpResponse get_action(Service& service, const HttpRequest& request) {
  auto manifest = service.store.peek(*ActionKey::from_hex(request.arg));
  if (!manifest.ok()) return HttpResponse::error(manifest.error());
  if (!*manifest) {
    return HttpResponse::error({Code::kNotFound, "there is no entry for key " + request.arg,
                                "see `neuroncache misses` for why"});
  }
  if (request.rights) {
    if (Status may = request.rights->may((*manifest)->name_space); !may.ok()) {
      return HttpResponse::error(may.error());
    }
  }
  return HttpResponse::json((*manifest)->to_json());
}

HttpResponse put_action(Service& service, const HttpRequest& request) {
  const ActionKey key = *ActionKey::from_hex(request.arg);
  const bool import = request.query("import") == "1";
  const std::string lease(request.query("lease"));
  if (!import && lease.empty()) {
    return HttpResponse::error({Code::kInvalid, "a commit needs lease= and fence=",
                                "acquire the key first, or send import=1"});
  }
  auto manifest = Manifest::parse(request.body);
  if (!manifest.ok()) return HttpResponse::error(manifest.error());
  if (manifest->key != key) {
    return HttpResponse::error(
        {Code::kKeyMismatch,
         "the manifest is of key " + manifest->key.hex() + ", the path of " + request.arg,
         "send both for the same key"});
  }
  if (request.rights) {
    if (Status may = accept_from(service, *request.rights, *manifest); !may.ok()) {
      return HttpResponse::error(may.error());
    }
  }
  if (!import) {
    if (Status may = service.leases.may_commit(key, lease); !may.ok()) {
      return HttpResponse::error(may.error());
    }
  }
  if (!request.rights) sign_ours(service, *manifest, import);
  auto published = publish(service, *manifest);
  if (!published.ok()) return HttpResponse::error(published.error());
  if (!import) service.builds.learn(lease, manifest->peak_rss_bytes);
  service.work.built(key);
  service.outcomes.built(key, manifest->build_ms);
  // What a stranger built and nobody signed does not get this host's signature; where another host
  // has taken the build over, its entry is the one that all share.
  bool ours = !request.rights || !manifest->signature.empty();
  if (service.cluster && !import) ours = service.cluster->published(lease, ours) && ours;
  if (*published && !import && ours) service.tiers.published(key);
  if (service.jobs) service.jobs->built(key);
  service.keeper.apply(service.leases.settled(key));
  if (*published && !import) {
    service.store.count(manifest->name_space, "compile_seconds_spent",
                        static_cast<double>(manifest->build_ms) / 1000);
  }
  return answer({{"published", *published}}, *published ? 201 : 200);
}

}  // namespace nc::daemon
