// Package endpoint is the table of the API that Spillway serves, and the two functions that follow
// from it: Parse understands a client's request, and Write makes the request that goes to a shard.
// Nothing of the client's own path, query string, body or headers is forwarded: what Parse did not
// understand does not exist beyond it.
//
// It promises:
//   - A request that is not in the Table is NotFound, whatever the spelling of its path; a method
//     that a row does not list is MethodNotAllowed.
//   - Parse is total: it returns a Request or a *qerr.Error, never panics, and has read the body to
//     its end (or refused it) when it returns. Only after that can Go notice that a client has
//     left.
//   - Parse(Write(Parse(r))) equals Parse(r), for every row. FuzzRoundTrip holds it to that.
//   - Times, durations and limits mean what they mean to Prometheus 3.15, to the millisecond.
//
// It refuses to guess: a single-valued parameter sent twice with different values is an error, in
// the URL, in the body or split over both; so are semicolons as separators, bad percent-encoding,
// NUL bytes, text that is not UTF-8, and bodies that are neither a form nor (for remote read)
// snappy.
//
// It does not look into PromQL: policy does, after a scan without which the PromQL parser is not
// safe.
//
// Memory: Parse holds at most the body (Options.MaxBodyBytes) and its decoded parameters, which are
// no larger; for remote read the compressed body, the inflated one (Options.MaxReadDecodedBytes,
// checked before inflating) and messages whose number is capped while decoding. All of a body but
// its first 8 KiB, and what it inflates to, is told to Options.Hold before it is there; a query
// string over 16 KiB, which is there already, before anything else is.
//
//	req, err := endpoint.Parse(r, endpoint.Options{})
//	if err != nil {
//		qerr.From(err).WriteTo(w)
//		return
//	}
//	out, err := req.Write(ctx, shardURL)
package endpoint
