package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each command has an example, and the flags in examples exist.
func TestExamplesOfCommandsAreTrue(t *testing.T) {
	check := func(cmd *cobra.Command) {
		if cmd.Example == "" && cmd.Parent() != nil {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			_, line, found := strings.Cut(line, "adbuffer ")
			if !found {
				continue
			}
			for _, end := range []string{"   ", " | ", " && ", " >"} {
				line, _, _ = strings.Cut(line, end)
			}
			at, rest, err := newRoot(os.Stdout, os.Stderr).Find(wordsOf(line))
			if err == nil {
				err = at.ParseFlags(rest)
			}
			if err == nil {
				err = at.ValidateArgs(at.Flags().Args())
			}
			if err != nil {
				t.Errorf("the example %q of %s: %v", line, cmd.CommandPath(), err)
			}
		}
	}
	root := newRoot(os.Stdout, os.Stderr)
	check(root)
	for _, cmd := range root.Commands() {
		check(cmd)
		for _, below := range cmd.Commands() {
			check(below)
		}
	}
}

// wordsOf splits a line as a shell does, with single quotes.
func wordsOf(line string) (words []string) {
	for i, part := range strings.Split(strings.TrimSpace(line), "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
