// Package deny refuses requests by rule: what whoever runs Spillway has forbidden for a while, by
// query, selector, dashboard, panel, user, tenant, endpoint, range or step, with a reason that the
// caller is told.
//
// # Promises
//
//   - A rule refuses a request that has all that the rule names, until the rule expires. A rule in
//     shadow mode refuses nothing and is counted.
//   - Rules come from the configuration, which replaces them whole, from whoever runs Spillway
//     while it does, and from package journal. The last two outlive a reload, and, where there is a
//     file for them, the process.
//   - A file that cannot be read, or holds something else, keeps nobody from being served: the one
//     is left alone for the next start, the other put aside, and either is said.
//
// # Refusals
//
// A rule without a condition or a reason, a regular expression or selector that does not compile, a
// name that is taken, and more rules than MaxRules.
//
// # Memory and work
//
// At most MaxRules rules of each source, each of at most a few KiB. A request is compared with each
// of them: fields first, then texts, then selectors, and at last at most MaxRegexes regular
// expressions, over the first MaxRegexText bytes of its text.
package deny
