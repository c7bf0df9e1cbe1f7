package tests

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// account is what nginx's log says about the requests numbered 1 to n.
type account struct {
	once, twice, never int // numbers by how often they are in the log; twice or more
	foreign            int // lines of no such number
	connections        int
	longest            int    // the most requests on one connection
	repeated           []int  // some of twice
	stranger           string // one of foreign
}

// maxExamples is how many numbers a verdict names.
const maxExamples = 5

// readLog reads lines of "number requests-on-its-connection".
func readLog(r io.Reader, n int) (account, error) {
	var a account
	times := make([]uint8, n+1) // stays at its maximum
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		id, nth, ok := strings.Cut(lines.Text(), " ")
		place, err := strconv.Atoi(nth)
		if !ok || err != nil {
			return a, fmt.Errorf("nginx has logged %q", lines.Text())
		}
		if a.longest = max(a.longest, place); place == 1 {
			a.connections++
		}
		number, err := strconv.Atoi(id)
		if err != nil || number < 1 || number > n {
			a.foreign++
			a.stranger = id
			continue
		}
		if times[number] < 255 {
			times[number]++
		}
	}
	for number, t := range times[1:] {
		switch t {
		case 0:
			a.never++
		case 1:
			a.once++
		default:
			if a.twice++; len(a.repeated) < maxExamples {
				a.repeated = append(a.repeated, number+1)
			}
		}
	}
	return a, lines.Err()
}
