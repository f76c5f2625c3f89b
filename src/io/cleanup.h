// The list of temporary files and folders that must not outlive the process, and the signals that clear it.
#pragma once

#include <filesystem>
#include <functional>

namespace halfbyte {

// For programs, once, before other threads start: SIGINT, SIGTERM and SIGHUP (unless ignored by the parent)
// remove all registered paths and then end the process by that signal.
void install_cleanup_handler();

void register_temporary(const std::filesystem::path& path);

// Runs a step that makes a temporary permanent or removes it, and takes the path off the list; no signal's
// cleanup happens in between. If the step throws, the path stays on the list.
void settle_temporary(const std::filesystem::path& path, const std::function<void()>& step);

}  // namespace halfbyte
