//go:build !bare

package server

// bare is true in a program that is built with the tag bare, for measuring what estimates, weights,
// the list of live queries and attribution cost (docs/performance.md).
const bare = false
