package config

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// unknownKey returns the rule for a key that section type t, at path, does not have. It suggests the key of the
// document, of type root, that was probably meant.
func unknownKey(root, t reflect.Type, path, name string) string {
	const rule = "unknown key"
	var names []string
	for _, k := range keysOf(t) {
		if strings.EqualFold(k.name, name) {
			return "keys are lower case; write " + k.name
		}
		names = append(names, k.name)
	}
	if best := closest(name, slices.Values(names)); best != "" {
		return rule + "; did you mean " + best + "?"
	}
	if p := onlyPath(t, path, name); p != "" && !strings.Contains(p[len(path):], "[]") {
		return rule + "; did you mean " + p + "?"
	}
	if p := onlyPath(root, "", name); p != "" {
		return rule + " here; there is " + p
	}
	return rule
}

// onlyPath returns the path of the only key of this name at or below t, or "" if there is none or
// more than one.
func onlyPath(t reflect.Type, path, name string) string {
	found, count := "", 0
	visitKeys(t, path, "", func(p string, k key) {
		if k.name == name {
			found = p
			count++
		}
	})
	if count != 1 {
		return ""
	}
	return found
}

// closest returns the word whose spelling is most similar to name, or "" if no word is similar. Of
// equally similar words it returns the alphabetically first.
func closest(name string, words iter.Seq[string]) string {
	best, distance := "", min(len(name), max(2, len(name)/3+1)) // a word at this distance is no longer similar
	for word := range words {
		if d := editDistance(name, word); d < distance || d == distance && best != "" && word < best {
			best, distance = word, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance of a and b: how many bytes must be inserted, deleted or
// replaced to turn a into b. Words longer than maxShown, which no key is, are entirely different.
func editDistance(a, b string) int {
	if len(a) > maxShown || len(b) > maxShown {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1) // row[j] is the distance of a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
