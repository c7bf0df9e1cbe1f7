package main

import (
	"regexp"
	"testing"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestHelpOfSimNamesEveryKeyOfABehaviour(t *testing.T) {
	help := newSim(nil).Long
	for _, key := range sspsim.Keys() {
		testsupport.True(t, regexp.MustCompile(`\b`+key+`\b`).MatchString(help), "the help of sim has no %s", key)
	}
}
