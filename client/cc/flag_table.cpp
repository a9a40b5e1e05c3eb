#include "client/cc/flag_table.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

using T = Takes;
using K = InKey;
using R = Role;

// Reviewed row by row: a row that says kNo claims that the bytes of the output do not depend on it.
constexpr FlagSpec kFlags[] = {
    {"--framework", "framework", T::kValue, K::kYes, "", R::kPlain, false,
     "decides how the input is read"},
    {"--target", "target", T::kValue, K::kYes, "", R::kPlain, false, "the instruction set"},
    {"--model-type", "model-type", T::kValue, K::kYes, "", R::kPlain, false, "chooses passes"},
    {"--auto-cast", "auto-cast", T::kValue, K::kYes, "", R::kPlain, false, "number types"},
    {"--auto-cast-type", "auto-cast-type", T::kValue, K::kYes, "", R::kPlain, false,
     "number types"},
    {"--native-int64", "native-int64", T::kNothing, K::kYes, "on", R::kPlain, false,
     "number types"},
    {"--implicit-integer-downcast", "implicit-integer-downcast", T::kNothing, K::kYes, "on",
     R::kPlain, false, "number types"},
    {"--distribution-strategy", "distribution-strategy", T::kValue, K::kYes, "", R::kPlain, false,
     "chooses passes"},
    {"--logical-nc-config", "logical-nc-config", T::kValue, K::kYes, "", R::kPlain, false,
     "cores per logical core"},
    {"--lnc", "logical-nc-config", T::kValue, K::kYes, "", R::kPlain, false, "another spelling"},
    {"--optlevel", "optlevel", T::kValue, K::kYes, "", R::kPlain, false, "chooses passes"},
    {"-O", "optlevel", T::kValue, K::kYes, "", R::kPlain, false,
     "another spelling; -O2 and -O 2 are one"},
    {"--enable-mixed-precision-accumulation", "mixed-precision-accumulation", T::kNothing, K::kYes,
     "on", R::kPlain, false, "arithmetic"},
    {"--disable-mixed-precision-accumulation", "mixed-precision-accumulation", T::kNothing, K::kYes,
     "off", R::kPlain, false, "arithmetic"},
    {"--enable-saturate-infinity", "saturate-infinity", T::kNothing, K::kYes, "on", R::kPlain,
     false, "arithmetic"},
    {"--enable-fast-context-switch", "fast-context-switch", T::kNothing, K::kYes, "on", R::kPlain,
     false, "layout of the output"},
    {"--enable-fast-loading-neuron-binaries", "fast-loading-neuron-binaries", T::kNothing, K::kYes,
     "on", R::kPlain, false, "the output is not compressed"},
    {"--pipeline", "pipeline", T::kWords, K::kYes, "", R::kPlain, false,
     "chooses stages; that SaveTemps leaves the output alone is not proven"},
    {"--execute-repetition", "execute-repetition", T::kValue, K::kYes, "", R::kPlain, false,
     "in the output"},
    {"--enable-internal-neff-wrapper", "internal-neff-wrapper", T::kNothing, K::kYes, "on",
     R::kPlain, false, "form of the output"},
    {"--tensorizer-options", "tensorizer-options", T::kValue, K::kYes, "", R::kPlain, false,
     "chooses passes"},
    {"--internal-hlo2tensorizer-options", "internal-hlo2tensorizer-options", T::kValue, K::kYes, "",
     R::kPlain, false, "chooses passes"},
    {"--internal-max-instruction-limit", "internal-max-instruction-limit", T::kValue, K::kYes, "",
     R::kPlain, false, "decides whether it compiles"},
    {"--hbm-scratchpad-page-size", "hbm-scratchpad-page-size", T::kValue, K::kYes, "", R::kPlain,
     false, "memory layout"},
    {"--experimental-unsafe-fp8e4m3fn-as-fp8e4m3", "fp8e4m3fn-as-fp8e4m3", T::kNothing, K::kYes,
     "on", R::kPlain, false, "number types"},
    {"--output", "output", T::kValue, K::kNo, "", R::kOutput, false,
     "where the output goes, not what it is"},
    {"--logfile", "logfile", T::kValue, K::kNo, "", R::kLogfile, false, "where the log goes"},
    {"--verbose", "verbose", T::kValue, K::kNo, "", R::kPlain, false, "how much is printed"},
    {"--workdir", "workdir", T::kValue, K::kNo, "", R::kPlain, false, "where temporary files go"},
    {"--cache_dir", "cache_dir", T::kValue, K::kNo, "", R::kPlain, true, "another cache's place"},
    {"--no_cache", "no_cache", T::kNothing, K::kNo, "on", R::kNoCache, true,
     "this cache is not asked either"},
    {"--retry_failed_compilation", "retry_failed_compilation", T::kNothing, K::kNo, "on", R::kRetry,
     true, "a remembered failure is tried again"},
    {"--log_level", "log_level", T::kValue, K::kNo, "", R::kPlain, true,
     "how much libneuronxla prints"},
};

constexpr VariableSpec kVariables[] = {
    {"NEURON_*", K::kYes, "unless another row says that it is left out"},
    {"NEURONX_*", K::kYes, "as NEURON_"},
    {"NKI_*", K::kYes, "as NEURON_"},
    {"XLA_FLAGS", K::kYes, "but for its --xla_dump flags, which only write files"},
    {"NEURON_CC_FLAGS", K::kNo,
     "read as flags by the rules of the table above; what repeats the command line is left out"},
    {"NEURON_RT_*", K::kNo, "the runtime's; differs between the ranks of one job"},
    {"NEURON_COMPILE_CACHE_URL", K::kNo, "another cache's place"},
    {"NEURON_COMPILATION_CACHE_*", K::kNo, "bounds of another cache"},
    {"NEURON_COMPILED_ARTIFACTS", K::kNo, "another cache's place"},
    {"NEURON_LIBTORCH_*", K::kNo, "of the framework: caches, time-outs, capture"},
    {"NEURON_PARALLEL_COMPILE*", K::kNo, "of neuron_parallel_compile"},
    {"NEURON_EXTRACT_GRAPHS_ONLY", K::kNo, "of neuron_parallel_compile"},
    {"NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE", K::kNo, "of neuron_parallel_compile"},
    {"NEURON_NUM_RECENT_MODELS_TO_KEEP", K::kNo, "the runtime's"},
    {"NEURON_LAUNCH_BLOCKING", K::kNo, "the runtime's"},
    {"NEURON_FRAMEWORK_DEBUG", K::kNo, "dumps of the framework"},
    {"NEURON_LOCAL_RANK", K::kNo, "differs between the ranks of one job"},
    {"NEURON_GLOBAL_DEVICE_*", K::kNo, "differs between the ranks of one job"},
    {"NEURON_COMPILER_OPT_LEVEL", K::kNo, "the framework turns it into -O, which is in the key"},
    {"NKI_COMPILE_CACHE_URL", K::kNo, "another cache's place"},
    {"NKI_TRACE_CACHE_URL", K::kNo, "another cache's place"},
    {"NKI_ENABLE_TRACE_CACHE", K::kNo, "another cache's switch"},
};

bool matches(const VariableSpec& spec, std::string_view name) {
  if (!spec.name.ends_with('*')) return spec.name == name;
  return name.starts_with(spec.name.substr(0, spec.name.size() - 1));
}

std::string_view key_word(InKey in_key) {
  return in_key == K::kYes ? "yes" : "no";
}

}  // namespace

std::span<const FlagSpec> flag_table() {
  return kFlags;
}

const FlagSpec* find_flag(std::string_view spelling) {
  const auto* const it = std::ranges::find(kFlags, spelling, &FlagSpec::spelling);
  return it == std::end(kFlags) ? nullptr : it;
}

bool may_abbreviate(std::string_view spelling) {
  if (!spelling.starts_with("--") || spelling.size() < 3) return false;
  return std::ranges::any_of(kFlags,
                             [&](const FlagSpec& f) { return f.spelling.starts_with(spelling); });
}

std::span<const VariableSpec> variable_table() {
  return kVariables;
}

std::optional<std::string> keyed_variable(std::string_view name, std::string_view value) {
  const VariableSpec* best = nullptr;
  for (const VariableSpec& spec : kVariables) {
    if (matches(spec, name) && (best == nullptr || spec.name.size() >= best->name.size()))
      best = &spec;
  }
  if (best == nullptr || best->in_key == K::kNo || value.empty()) return std::nullopt;
  if (name != "XLA_FLAGS") return std::string(value);
  std::vector<std::string> kept = split_words(value);
  std::erase_if(kept, [](const std::string& word) { return word.starts_with("--xla_dump"); });
  if (kept.empty()) return std::nullopt;
  return quote_words(kept);
}

std::string flag_table_markdown() {
  std::string out = "| flag | takes | in the key as | why |\n|---|---|---|---|\n";
  for (const FlagSpec& f : kFlags) {
    const std::string_view takes = f.takes == T::kNothing ? ""
                                   : f.takes == T::kValue ? "a value"
                                                          : "words";
    const std::string key = f.in_key == K::kNo ? "-"
                            : f.implied.empty()
                                ? fmt::format("`flag.{}`", f.canonical)
                                : fmt::format("`flag.{}` = {}", f.canonical, f.implied);
    out += fmt::format("| `{}` | {} | {} | {}{} |\n", f.spelling, takes, key, f.why,
                       f.wrapper_only ? " (of libneuronxla; not passed on)" : "");
  }
  return out;
}

std::string variable_table_markdown() {
  std::string out = "| variable | in the key | why |\n|---|---|---|\n";
  for (const VariableSpec& v : kVariables)
    out += fmt::format("| `{}` | {} | {} |\n", v.name, key_word(v.in_key), v.why);
  return out;
}

}  // namespace nc::cc
