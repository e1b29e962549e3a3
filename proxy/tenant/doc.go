// Package tenant knows who asks, and keeps everybody to what is theirs.
//
// It promises:
//   - Where there are tenants, nobody else is answered. A tenant is known by a bearer token, a name
//     and a password, a verified client certificate, or a token that one issuer has signed;
//     comparing takes as long for a wrong one as for a right one, and checking passwords never
//     takes more than one processor, which each address has in its turn. Those of the listeners'
//     own users are checked alike (Passwords).
//   - What was withdrawn ends: a token that another one has replaced after tokenOverlap from when its
//     file was changed, one whose file is gone after tokenGone, and nobody who comes after a long
//     time is known by an issuer's keys of before, while the issuer answers.
//   - A signed token is believed if a public key of the issuer fits it, by an algorithm of the list
//     and no other, if it is meant for us and has not expired. The keys that were read last with
//     success hold; no request waits for others longer than keysPatience.
//   - A tenant's matchers are in every selector of what is sent on: PromQL, match[], remote read.
//     What Enforce returns is parsed again and checked; a selector without them is an error, never
//     an answer.
//   - What cannot be kept to them is refused (info(), which reads series that its text does not
//     name; the servers' own state), or kept from them by labels (rules and alerts) and names
//     (metadata, which is without texts).
//   - On whose behalf a tenant asks is believed as far as its configuration says.
//
// It refuses to guess: two ways of authentication in one request count as none, also where both are
// one tenant's. A client certificate that is no tenant's is none, so that clients may be asked for
// one and have tokens. It holds the
// tokens, the hashes, and at most maxKnown passwords that were right or wrong, as keyed hashes; of
// the issuer at most maxKeys keys, maxKeySet while they are read, and maxVerified tokens that were
// right, as keyed hashes.
package tenant
