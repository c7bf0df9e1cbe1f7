package reports

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
)

func TestOnlyExactlyTheUpstreamsAnswerPasses(t *testing.T) {
	body := load.ConstantBody(1000)
	up, err := load.StartConstant("127.0.0.1:0", body)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	if err := forwards(t.Context(), up.Addr(), body); err != nil {
		t.Errorf("the upstream itself: %v", err)
	}
	for name, h := range map[string]http.HandlerFunc{
		"another body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(strings.Replace(string(body), "x", "y", 1)))
		},
		"another status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(502)
			w.Write(body)
		},
		"another type": func(w http.ResponseWriter, _ *http.Request) { w.Write(body) },
		"too much":     func(w http.ResponseWriter, _ *http.Request) { w.Write(append(slices.Clone(body), ' ')) },
	} {
		s := httptest.NewServer(h)
		if err := forwards(t.Context(), strings.TrimPrefix(s.URL, "http://"), body); err == nil {
			t.Errorf("%s passed", name)
		}
		s.Close()
	}
}

func measured(name, program, protocol string, cpu ...float64) *figures {
	f := &figures{peerRow: peerRow{Name: name, Program: program, Protocol: protocol}}
	for _, c := range cpu {
		f.saturated = append(f.saturated, sample{cpuPerRequest: c, rate: 1e6 / c})
		f.fixed = append(f.fixed, sample{cpuPerRequest: 2 * c})
	}
	return f
}

func TestRowsWithErrorsAreVoidAndTheRestAreComparedPairwise(t *testing.T) {
	broken := measured("nginx h1", "nginx", "h1", 1)
	broken.void = "at saturation, 3 of 9 requests failed"
	doubted := measured("adbuffer h1", "adbuffer", "h1", 30, 40, 32)
	doubted.doubts = []string{"at saturation it used only 20 % of its core"}
	r := &results.Report{}
	tabulate(r, PeersOptions{Rounds: 3, Rate: 5000}, []*figures{
		measured("adbuffer pipelined", "adbuffer", "pipelined", 10, 20, 12),
		measured("haproxy h1", "haproxy", "h1", 14, 25, 15),
		doubted,
		broken,
	})
	rows := r.Tables[0].Rows
	if got := []string{rows[0].Cells[0], rows[1].Cells[0], rows[3].Cells[0], rows[3].Cells[1]}; !slices.Equal(got, []string{"adbuffer pipelined", "haproxy h1", "nginx h1", "void"}) {
		t.Errorf("rows %q", got)
	}
	if len(rows[3].Doubts) == 0 || !strings.Contains(strings.Join(r.Doubts, ""), "nginx h1: void: at saturation") {
		t.Errorf("the void row is not marked: %q", r.Doubts)
	}
	for _, c := range r.Charts {
		if !slices.Contains(c.Labels, "adbuffer h1 †") {
			t.Errorf("chart %q does not mark the doubted row: %q", c.Title, c.Labels)
		}
		if slices.Contains(c.Labels, "nginx h1") {
			t.Errorf("chart %q shows the void row", c.Title)
		}
	}
	if len(r.Verdicts) != 1 || !r.Verdicts[0].Held {
		t.Fatalf("verdicts %+v", r.Verdicts)
	}
	// 10/14, 20/25, 12/15: the median of the rounds' ratios.
	if !strings.Contains(r.Verdicts[0].Words, "ratio 0.80") {
		t.Errorf("%q, want the ratio 0.80", r.Verdicts[0].Words)
	}
}
