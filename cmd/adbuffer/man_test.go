package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"adbuffer/internal/app/app"
	"adbuffer/internal/test/testsupport"
)

// TestManPages writes a man page of section 1 for each command. $ADBUFFER_MAN_PAGES names the folder; a
// release packs what it finds there. The pages have the date of $SOURCE_DATE_EPOCH, or of today.
func TestManPages(t *testing.T) {
	dir := cmp.Or(os.Getenv("ADBUFFER_MAN_PAGES"), t.TempDir())
	testsupport.NoError(t, os.MkdirAll(dir, 0o755))
	root := newRoot(os.Stdout, os.Stderr)
	root.DisableAutoGenTag = true
	describeForMan(root)
	testsupport.NoError(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "adbuffer " + app.Version, Manual: "adbuffer"}, dir))
	for page, want := range map[string]string{
		"adbuffer.1": ".SH EXIT STATUS", "adbuffer-check.1": "\n  needs a restart", "adbuffer-serve.1": "config", "adbuffer-ssp-drain.1": ".SH EXIT STATUS",
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		testsupport.NoError(t, err)
		testsupport.True(t, strings.Contains(string(text), want), "%s lacks %q", page, want)
		testsupport.True(t, !strings.Contains(string(text), "Jan 0001"), "%s has no date", page)
	}
}

// describeForMan converts the descriptions of a command and its subcommands to Markdown, from which the man pages
// are made. A paragraph with an indented line is a table, whose lines are kept.
func describeForMan(cmd *cobra.Command) {
	paragraphs := strings.Split(cmp.Or(cmd.Long, cmd.Short), "\n\n")
	for i, p := range paragraphs {
		if strings.Contains("\n"+p, "\n  ") {
			paragraphs[i] = "```\n" + p + "\n```"
		}
	}
	cmd.Long = strings.Join(paragraphs, "\n\n") + "\n\n# EXIT STATUS\n" + strings.TrimPrefix(strings.TrimSpace(exitCodes), "Exit status: ")
	for _, below := range cmd.Commands() {
		describeForMan(below)
	}
}
