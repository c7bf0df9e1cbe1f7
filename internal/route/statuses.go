package route

import (
	"slices"
	"strconv"
)

// Statuses is a set of statuses from 400 to 599. The zero value is empty.
type Statuses struct {
	classes [6]bool // by the first digit
	codes   []int
}

// NewStatuses returns the set of the statuses in texts: the classes 4xx and 5xx, and exact statuses.
func NewStatuses(texts ...string) (s Statuses) {
	for _, text := range texts {
		if text == "4xx" || text == "5xx" {
			s.classes[text[0]-'0'] = true
			continue
		}
		status, err := strconv.Atoi(text)
		if err != nil {
			panic("BUG: a valid configuration has the status " + text)
		}
		s.codes = append(s.codes, status)
	}
	return s
}

// Has reports whether the set has a status.
func (s *Statuses) Has(status int) bool {
	return status >= 400 && status <= 599 && (s.classes[status/100] || slices.Contains(s.codes, status))
}
