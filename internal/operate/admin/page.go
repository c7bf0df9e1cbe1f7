package admin

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// page is the whole page, including style and script. The page requests only paths of this listener.
//
//go:embed page.html
var page string

// pagePolicy lets a browser run only the page's own script and style, by their hashes, and request only this
// listener. So a text that came from an SSP or a file cannot become active markup.
var pagePolicy = fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; connect-src 'self'; img-src data:; "+
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", hashOf("script"), hashOf("style"))

func hashOf(element string) string {
	_, rest, ok := strings.Cut(page, "<"+element+">")
	body, _, closed := strings.Cut(rest, "</"+element+">")
	if !ok || !closed {
		panic("BUG: page.html has no " + element)
	}
	sum := sha256.Sum256([]byte(body))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func servePage(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	w.Write([]byte(page))
}
