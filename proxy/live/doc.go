// Package live is the table of the requests that are under way: who asks what, since when, what is
// being done for it and what it holds; and how they are ended from outside.
//
// It promises that a request is in the table from when its bounds are decided until its answer has
// ended, and that one that is ended is told so, with the cause that it was given: where nothing has
// been written yet as an error, else by a connection that is cut. What a request is doing is read
// when somebody asks for the table; the request itself pays for one entry.
//
// It refuses nothing. Whoever may see and end requests is the caller's business.
//
// Memory: one entry for each request under way, which are bounded by the connections of the
// listener, with at most MaxQueryBytes of its text in a list.
package live
