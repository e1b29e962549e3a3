// Package nearest finds the known name that somebody who wrote an unknown one probably meant, for
// error messages.
package nearest

import "strings"

// longest is how many bytes of a name are compared: no name of ours is longer, and what others
// write may be of any length.
const longest = 64

// Of is the first of the names that are the fewest letters from a word, at most so many of them;
// empty where none is. Upper and lower case are the same. It takes time in proportion to the names'
// lengths, and 64 times as much at most, however long the word is.
func Of(word string, names []string, most int) string {
	best, least := "", most+1
	for _, n := range names {
		if d := distance(strings.ToLower(word[:min(len(word), longest)]), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the number of letters (bytes) to insert, delete or change between two words
// (Levenshtein's). Long ones are cut.
func distance(a, b string) int {
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
