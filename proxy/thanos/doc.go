// Package thanos is what Spillway knows of Thanos Query: a dialect of the Prometheus API, spoken by
// a server that has no series of its own but asks stores for them. It says what such a server is to
// be told with each request, what it serves and warns of, which of its errors are its stores', and
// which of its stores an answer lacks. It asks nobody: proxy/shard does, and keeps a Stores for
// each server.
//
// A Thanos Query serves finished answers over the Prometheus API, and differs from a Prometheus in
// four ways that can make an answer wrong:
//
//   - It answers without stores that it cannot reach. While it has not noticed, it says so (a
//     warning, or an error where partial_response=false, which is what it is told); once its health
//     check, every 5 s, has noticed, the store is left out in silence, whatever partial_response
//     says. So after every answer its page of stores is looked at: see Stores.
//   - On series it loses the warnings of a partial answer, so there it is never allowed one.
//   - The timeout that it is sent does not end the reading of its stores. Its own does, and some
//     versions then answer with what there is. So an answer that comes when the time was over is
//     none, and an empty one that comes shortly before is not believed.
//   - Where it was told to, it answers from downsampled data, from another engine, or without
//     deduplication. So it is told otherwise with every request.
//
// Memory: a Stores holds the list as it was read last, those seen in the last 24 hours, at most
// 10,000, and for at most 20,000 pairs of label sets whether they are copies (4 MiB).
package thanos
