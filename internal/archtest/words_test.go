package archtest

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// riddles are words that leave open which client, request, process or operator is meant.
var riddles = regexp.MustCompile(`\b([Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody|[Ww]hoever|[Ww]homever|[Ww]hom|[Nn]o-one|[Nn]o one (can|else|has|is|may)|[Ff]or ever)\b`)

// riddleNames finds the same words in the identifiers of Go code.
var riddleNames = regexp.MustCompile(`Nobody|Somebody|Anybody|Everybody|Whoever|Whomever|ForEver([A-Z]|$)`)

// oldWords are words of comments that have a plainer word: a watch calls or reports, an SSP sends a
// response, and an exchange continues. The words of code itself are not comments.
var oldWords = regexp.MustCompile(`\b([Tt]old|[Tt]ells?|[Tt]elling|[Aa]nswer(s|ed|ing)?|([Gg]o|[Gg]oes|[Gg]oing|[Ww]ent) on|in hand|spoken)\b`)

// oldWordNames are the same words in the name of a test.
var oldWordNames = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z].*(Told|Tells?|Telling|Answer(s|ed|ing)?|Go(es)?On|Spoken)([A-Z]|$)`)

func TestCommentsAndTextsSayWhichPartyIsMeant(t *testing.T) {
	const root = "../.."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "node_modules", "bin", "dist"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		name := strings.TrimSuffix(d.Name(), filepath.Ext(path))
		switch ext := filepath.Ext(path); {
		case !d.Type().IsRegular(), strings.HasSuffix(name, ".LICENSE"), d.Name() == "words_test.go":
			return nil
		case ext == ".go":
			files++
			return goRiddles(t, path)
		case slices.Contains([]string{".md", ".yaml", ".yml", ".html", ".sh", ".service", ".socket", ".txt"}, ext), d.Name() == "Makefile", d.Name() == "Dockerfile":
			text, err := os.ReadFile(path)
			for i, line := range strings.Split(string(text), "\n") {
				reportRiddle(t, path, i+1, riddles.FindString(line))
			}
			files++
			return err
		}
		return nil
	})
	if err != nil || files < 1000 {
		t.Errorf("%d files were read: %v", files, err)
	}
}

// goRiddles reports riddles in the comments, strings and names of a Go file. Consecutive line
// comments are one text, since a riddle may have two words.
func goRiddles(t *testing.T, path string) error {
	text, err := os.ReadFile(path)
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(path, -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	var comment strings.Builder
	for {
		pos, tok, lit := s.Scan()
		if tok == token.COMMENT {
			comment.WriteString(strings.TrimPrefix(lit, "//"))
			continue
		}
		reportRiddle(t, path, file.Line(pos), riddles.FindString(comment.String()))
		reportOldWord(t, path, file.Line(pos), oldWords.FindString(comment.String()))
		if tok == token.IDENT {
			reportOldWord(t, path, file.Line(pos), oldWordNames.FindString(lit))
		}
		comment.Reset()
		switch tok {
		case token.EOF:
			return err
		case token.STRING:
			reportRiddle(t, path, file.Line(pos), riddles.FindString(lit))
		case token.IDENT:
			reportRiddle(t, path, file.Line(pos), riddleNames.FindString(lit))
		}
	}
}

func reportRiddle(t *testing.T, path string, line int, word string) {
	if word != "" {
		t.Errorf("%s:%d: %q: name the client, SSP, request, connection, goroutine or operator instead, or the bound", strings.TrimPrefix(path, "../../"), line, word)
	}
}

func reportOldWord(t *testing.T, path string, line int, word string) {
	if word != "" {
		t.Errorf("%s:%d: %q: say calls, reports, returns, shows, responds, response or continues", strings.TrimPrefix(path, "../../"), line, word)
	}
}
