// Package embedpg fetches, starts and stops PostgreSQL servers of this process's
// own. Nothing needs to be installed: the binaries are fetched once, verified,
// unpacked into a cache that all processes share, and driven directly. A process
// that runs as root starts the server as an unprivileged user, because
// PostgreSQL refuses root.
//
// A server never outlives the process that started it, even one that was
// killed: a watchdog shuts it down, and removes its data if they are temporary.
package embedpg
