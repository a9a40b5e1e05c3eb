// Texts made from the table of verbs.
#pragma once

#include <string>

#include "client/cli/verb.hpp"

namespace nc::cli {

std::string overview_help();                     // all verbs, one line each
std::string group_help(std::string_view group);  // "daemon"; "" when there is no such group
std::string verb_help(const Verb& verb);
std::string usage_line(const Verb& verb);               // "neuroncache show [OPTIONS] KEY"
std::string man_page();                                 // client/man/neuroncache.1
std::string markdown();                                 // docs/cli.md
std::string completion_script(std::string_view shell);  // "bash", "zsh" or "fish"

}  // namespace nc::cli
