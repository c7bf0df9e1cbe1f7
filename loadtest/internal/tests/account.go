package tests

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// account counts the requests numbered 1 to n in nginx's log.
type account struct {
	once, twice, never int // numbers that are in the log once, at least twice, and not at all
	foreign            int // lines with another number
	connections        int
	longest            int    // the most requests of one connection
	afterPause         int    // how many requests the connection of the first request after the pause has carried then
	repeated           []int  // some numbers of twice
	stranger           string // one number of foreign
}

// maxExamples is how many repeated numbers a verdict names.
const maxExamples = 5

// readLog reads lines of "number requests-on-its-connection". The pause comes before the last n/2 numbers.
func readLog(r io.Reader, n int) (account, error) {
	var a account
	times := make([]int, n+1)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		id, nth, ok := strings.Cut(lines.Text(), " ")
		place, err := strconv.Atoi(nth)
		if !ok || err != nil {
			return a, fmt.Errorf("nginx has logged %q", lines.Text())
		}
		a.longest = max(a.longest, place)
		if place == 1 {
			a.connections++
		}
		number, err := strconv.Atoi(id)
		if err != nil || number < 1 || number > n {
			a.foreign++
			a.stranger = id
			continue
		}
		times[number]++
		if a.afterPause == 0 && number > n-n/2 {
			a.afterPause = place
		}
	}
	for number, t := range times[1:] {
		switch t {
		case 0:
			a.never++
		case 1:
			a.once++
		default:
			a.twice++
			if len(a.repeated) < maxExamples {
				a.repeated = append(a.repeated, number+1)
			}
		}
	}
	return a, lines.Err()
}
