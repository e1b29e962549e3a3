// Package inventory says what is stored: series, samples a second, label cardinalities and buckets
// of histograms, by job and metric.
//
//	src, err := inventory.Pages("scrapes/")          // or Scrape, API, Blocks; Open by name; Join puts several together
//	inv, err := inventory.Collect(ctx, src, nil)
//
// # What it promises
//
// A series is what the server stores: pages are read by Prometheus' own parser, so that le and
// quantile are normalised as the server does, and have the labels of their target; labels of the
// page that clash with those become exported_…, unless the target honours them. A histogram that a
// page has both as native and as classic is both, as on a server with scrape_native_histograms and
// always_scrape_classic_histograms: there may be more in the inventory than is stored, never less.
// Pages lack what the server adds itself (up, scrape_…); blocks and the API have it.
//
// Each source is read again from its beginning as often as it is asked, so that nobody has to hold
// all series: the proofs stream them. Pages that are fetched are fetched once, and read from a
// copy, so that all readings are of the same series. An API is asked again each time, for the same
// span of time; what a head has added since is in the later reading.
//
// # What it refuses
//
// A page that does not parse, a target that does not answer, an answer that was cut short by a
// limit and cannot be split further or that warns of missing shards, a block that cannot be opened:
// an inventory with a hole in it would let a rule pass whose harm is in the hole. The error names
// the file and line, the target or the block. Passwords in URLs are never shown.
//
// # Memory
//
// Collect holds MaxValues values of each label of each metric of each job, and no series; a label
// with more costs 8 KiB, in which its values are counted within 5 %. Sources hold one page (at most
// MaxPageBytes), one answer of the API and eight bytes for each series of one metric, or 6 MB of
// symbols for each block; Scrape has four pages at once while it fetches, and zipped copies on
// disk. Join of several holds some twenty bytes for each series while it is read. Taking stock of
// blocks with ten million series takes fifteen seconds of processor time and 300 MB, with the files
// that are mapped.
package inventory
