// Package prom asks the proxy (or any Prometheus HTTP API): instant and range queries, for one
// datasource instance.
//
// It promises: the answer's warnings and infos are all returned; a refusal comes back as *Refusal
// with the bound, its value, what was seen and the advice that the proxy gave, and what came in
// place of an answer as *Failure with the status that a gateway would give; a request ends when its
// context does, and nothing of it is left. Every query is a POST, says `partial_response` where the
// settings or WithWhole choose, and carries the headers that the context has (WithHeaders).
//
// It refuses answers over MaxAnswerBytes, answers that are not what the API says (a login page of a
// proxy in between: the error names what came), and redirects to other hosts. It does not retry:
// Grafana's users do, and the proxy's 429 says when.
//
// Memory: an answer is decoded as it is read; samples are 16 bytes each. Of answers larger than
// smallBytes as many are read at a time as budgetBytes has room for, by their length, or by
// MaxAnswerBytes where that is not known; the others wait. An answer whose series may be any
// (WithMaxSeries) keeps the first so many and counts the others.
package prom
