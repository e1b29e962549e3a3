// Command release packs what is published of a version: for each platform an archive with the
// program, its man pages and completions, and a list of what is in it (SBOM); the Helm chart, with
// no links in it; the notes, checksums of everything, and, with a key, their signature. `make
// release` runs it, `make cut` the part that gives the changelog's unreleased lines to a version;
// docs/release.md has the steps.
//
// # What it promises
//
// Two releases of one commit by one Go release are equal byte for byte, wherever they are made (a
// signature is not: it is random). The program is the same file as in the image (deploy/program).
// A folder that holds something else than a release is never overwritten, and one that holds a
// release is replaced whole.
//
// # What it refuses
//
// A version that is no semantic version, that has no lines in CHANGELOG.md, or that is the tag of
// another commit; a tree that is not as it was committed; a key that is not what it can sign with.
// All of that before anything is built.
//
// # What it holds
//
// One program at a time, about 70 MB, and all archives, about 25 MB each.
package main
