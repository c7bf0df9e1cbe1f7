package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/test/testsupport"
)

// A part that is forbidden, or that does not arrive, is missing from the file, which has all other parts.
func TestABundleNamesThePartsThatItCouldNotCollect(t *testing.T) {
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/pprof/heap":
			http.Error(w, "this needs the token of admin.token_file", http.StatusForbidden)
		case "/debug/pprof/profile":
			<-r.Context().Done()
		case "/capture":
			http.Error(w, "captures are off; see admin.capture", http.StatusNotFound)
		default:
			io.WriteString(w, r.URL.Path)
		}
	}))
	defer listener.Close()
	client, err := admin.NewClient(admin.ClientOptions{URL: listener.URL})
	testsupport.NoError(t, err)
	parts := partsOf(time.Second, []string{"openx"})
	for i := range parts {
		parts[i].takes = 20 * time.Second
		if parts[i].file == "cpu.pprof" {
			parts[i].takes = 0
		}
	}
	out := filepath.Join(t.TempDir(), "bundle.zip")
	n, missing, err := writeBundle(t.Context(), client, out, 50*time.Millisecond, parts)
	testsupport.MustTrue(t, err == nil && n == 8 && len(parts) == 11, "%d of %d parts, %v; missing: %v", n, len(parts), err, missing)
	want := []string{
		"capture-openx.json: " + listener.URL + "/capture?n=20&wait=5s&ssp=openx responds 404 Not Found: captures are off; see admin.capture",
		"heap.pprof: " + listener.URL + "/debug/pprof/heap: this needs the token of admin.token_file; see --token-file and --cert-file",
		"cpu.pprof: no response from " + listener.URL + "/debug/pprof/profile?seconds=1 within 50ms; see --timeout",
	}
	if got := missing.Error(); got != strings.Join(want, "\n") {
		t.Errorf("the problems are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	files := testsupport.ReadZip(t, out)
	if files["errors.txt"] != missing.Error()+"\n" || files["trace.out"] != "/debug/pprof/trace" || len(files) != 9 {
		t.Errorf("the file holds %q", files)
	}
}

func TestABundleWithoutAnyPartLeavesNoFile(t *testing.T) {
	client, err := admin.NewClient(admin.ClientOptions{URL: "http://127.0.0.1:1"})
	testsupport.NoError(t, err)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	out := filepath.Join(t.TempDir(), "bundle.zip")
	if n, _, err := writeBundle(canceled, client, out, time.Minute, partsOf(time.Second, nil)); n != 0 || err == nil || strings.ContainsAny(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "context canceled") {
		t.Errorf("%d parts, %v; want one line that names the end of the command", n, err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	testsupport.NoError(t, os.WriteFile(out, []byte("older"), 0o600))
	if _, _, err := writeBundle(t.Context(), client, out, time.Minute, nil); err == nil {
		t.Error("a file that exists was overwritten")
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "older" {
		t.Errorf("%q, %v", b, err)
	}
}
