// Package oauth makes the round tripper of an HTTPClientConfig, as prometheus/common does, but for
// oauth2: the library fetches tokens by a client that follows redirects, whereby a 307 of the token
// endpoint hands the client's secret to another server, and that has no limit of time, whereby an
// endpoint that hangs holds up requests beyond their deadlines.
//
// What it promises: the secret is sent to token_url alone; a request waits for a token no longer
// than its context lives; requests that wait at once are one fetch, which ends after 10 s. A secret
// in a file is read for each request, and a new one is used at once; where the file is gone for a
// moment, the token that is there goes on being used until it expires.
//
// What it refuses: redirects, which are answers to it, and whatever answer 256 KiB were read of and
// whose header is not there yet. It keeps one token.
package oauth
