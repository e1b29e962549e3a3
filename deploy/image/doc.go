// Command image builds the container image of the proxy, which has the remediator too, without a
// container engine: the programs for each platform, as an OCI image layout that skopeo, crane,
// podman and containerd read, or straight into a registry. `make image` runs it; docs/image.md says
// what is in it. Of the Grafana plugin's archive it makes a second image, which puts the plugin
// into Grafana's pod.
//
// # What it promises
//
// Two builds of one commit by one Go release are equal byte for byte, wherever they are made: paths
// are trimmed, no time of the build goes in, and every file has the time of the commit. Nothing is
// downloaded but Go modules: there is no base image. A folder that holds something else than an
// image layout is never overwritten, and one that holds a layout is replaced whole.
//
// # What it refuses
//
// A platform that is not linux; a version that no image tag can be; a tree without git where the
// version, the commit and its time are not given; an archive of a plugin that has no back end for a
// platform.
//
// # What it holds
//
// One program at a time, about 70 MB, and its compressed layer; of the plugin at most maxBytes.
package main
