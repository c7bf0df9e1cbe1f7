package main

import (
	"regexp"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestHelpOfSimNamesEveryKeyOfABehaviour(t *testing.T) {
	help := newSim(nil).Long
	for _, key := range sspsim.Keys() {
		if !regexp.MustCompile(`\b` + key + `\b`).MatchString(help) {
			t.Errorf("the help of sim has no %s", key)
		}
	}
}
