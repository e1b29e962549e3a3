//go:build bare

package server

// bare tells that requests are neither estimated nor weighed, seen, or attributed to anybody: a
// program that is built with this tag is for measuring what that costs, and for nothing else.
const bare = true
