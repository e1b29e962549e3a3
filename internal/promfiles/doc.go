// Package promfiles makes what a Prometheus server finds on its disk: blocks, and its
// configuration.
//
// It serves the embedded shards of localprom as well as the real servers of realprom, and links no
// database. A block is linked or copied whole or not at all; a configuration is changed in nothing
// but its external labels. Memory: the text of one configuration.
package promfiles
