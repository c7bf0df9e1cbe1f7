package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.123: "0.12", 9.999: "10.00", 12.34: "12.3", 123.4: "123", 12345.6: "12 346", 1234567: "1 234 567", -1234: "-1 234"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestReportsComeBackInTheOrderTheyAreShown(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"sick", "zebra", "keepalive", "peers"} {
		if _, err := (&Report{Kind: kind}).Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, r := range got {
		kinds = append(kinds, r.Kind)
	}
	if s := strings.Join(kinds, " "); s != "peers keepalive sick zebra" {
		t.Errorf("order %q", s)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadAll(dir); err == nil || !strings.Contains(err.Error(), "x.json") {
		t.Errorf("a broken file: %v", err)
	}
}

func TestBrokenPromiseThatRestsOnDoubtsBreaksNothing(t *testing.T) {
	r := Report{Verdicts: []Verdict{{Held: true}, {Held: false, Doubted: true}}}
	if !r.Held() {
		t.Error("a verdict that cannot be trusted counts")
	}
	r.Verdicts = append(r.Verdicts, Verdict{Held: false})
	if r.Held() {
		t.Error("a broken promise does not count")
	}
}
