// Addresses (scheme://user:password@host/path?option=value) as people may see them: the one place
// that decides what in them is a secret, for messages, logs, `config show` and process titles.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nc {

// One address with "***" for user and password and for the values of options that are not known to
// be plain. What is no address, or a broken one, may be given, too: more is hidden then, not less.
std::string shown_address(std::string_view address);

// Overwrites the same with '*' in the addresses among the arguments where these lie, so that `ps`
// and /proc do not show them to everybody. Copy the arguments first.
void hide_credentials(std::span<char* const> arguments);

// From here on this process, which has keys, tokens and passwords in memory, leaves no core file,
// and no other of its user may read its memory. Programs that it runs are as ever.
void hide_memory();

}  // namespace nc
