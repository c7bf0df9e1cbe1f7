package route

import (
	"slices"
	"strconv"
)

// Statuses is a set of statuses from 400 to 599: the classes 4xx and 5xx, and exact statuses, as a configuration
// states them.
type Statuses []string

// Has reports whether the set has a status.
func (s Statuses) Has(status int) bool {
	return status >= 400 && status <= 599 && slices.ContainsFunc(s, func(text string) bool {
		exact, err := strconv.Atoi(text)
		return err == nil && exact == status || err != nil && int(text[0]-'0') == status/100
	})
}
