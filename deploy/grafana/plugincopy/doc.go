// Command plugincopy puts the files of the Grafana plugin where Grafana looks for plugins, as an
// init container of Grafana's pod. `make image-plugin` packs it with them; docs/grafana-plugin.md
// says how it is used.
//
//	plugincopy --from=/plugin --to=/var/lib/grafana/plugins
//
// # What it promises
//
// The plugin's folder is there whole or not at all: files are copied beside it, under a name that
// begins with a dot, plugin.json last, and take its place by one rename. What is there already and
// is the same is left alone, so that it may run at each start, and in several pods at once that
// share a volume: where its file system has locks (flock), one goes after the other. NFS has those
// of a folder within each node only: copiers on two nodes may then disturb one another, so that one
// fails, or removes files of the other's copy, which the next start mends.
//
// Other plugins in the folder are not touched. It needs no root, no shell and no file system but a
// target to write to. A target that is not there is made, where its parent is. Of what was there
// before, plugin.json goes first; what then cannot be removed is told as a warning, and Grafana
// starts.
//
// # What it refuses
//
// A target that is no folder, or is a plugin's own folder; a folder of the plugin's name that holds
// another plugin or something else; the same plugin in a second folder, which Grafana would find
// twice, as it would one that an earlier copy left and whose plugin.json cannot be removed; sources
// with links, with more than maxFiles files or maxBytes bytes.
//
// # What it holds
//
// One buffer of 64 KiB, the names of at most maxFiles files, and at most maxText of a plugin.json.
package main
