package rig

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
)

// tool returns a load that a load tool makes. start returns the tool's command line, and the function that reads the
// figures from its standard output. A run that takes a minute longer than seconds fails.
func tool(seconds int, start func(*Stage) (argv []string, parse func(out string) (*Figures, error))) Load {
	return func(s *Stage) (*Figures, error) {
		ctx, cancel := context.WithTimeout(s.Ctx, time.Duration(seconds)*time.Second+time.Minute)
		defer cancel()
		argv, parse := start(s)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			text := bytes.TrimSpace(errs.Bytes())
			return nil, fmt.Errorf("%s: %w: %s", argv[0], err, text[max(0, len(text)-400):])
		}
		f, err := parse(string(out))
		if err != nil {
			return nil, err
		}
		f.TimeWait = uint64(load.TimeWait())
		switch {
		case f.Failed > 0:
			f.Doubts = []string{fmt.Sprintf("%d of %d requests failed", f.Failed, f.Answered+f.Failed)}
		case f.Answered == 0:
			f.Doubts = []string{"no request was answered"}
		}
		return f, nil
	}
}

// onLoadCores returns a command line that runs on the cores of the load.
func (s *Stage) onLoadCores(argv ...string) []string {
	if s.LoadCores == "" {
		return argv
	}
	return append([]string{"taskset", "-c", s.LoadCores}, argv...)
}

// request returns the fields of a request as -H options, and its URL.
func (s *Stage) request(t load.Template) (out []string) {
	for _, f := range t.Headers {
		out = append(out, "-H", f.Name+": "+f.Value)
	}
	return append(out, s.URL()+load.Fill(t.Path, 1))
}

// wholeSeconds rounds the length of a load to whole seconds, the unit of wrk and h2load.
func wholeSeconds(length time.Duration) int { return max(1, int(length.Seconds()+0.5)) }

// wrkScript makes wrk print its results as JSON.
//
//go:embed wrk.lua
var wrkScript string

// WRK loads with one thread of wrk, which repeats one request.
func WRK(t load.Template, conns int, length time.Duration) Load {
	seconds := wholeSeconds(length)
	return tool(seconds, func(s *Stage) ([]string, func(string) (*Figures, error)) {
		file := filepath.Join(s.Rig.Dir, "wrk.lua")
		script := wrkScript
		if t.Method == "POST" {
			script += fmt.Sprintf("wrk.method, wrk.body = 'POST', [[%s]]\n", t.Literal)
		}
		s.Check(os.WriteFile(file, []byte(script), 0o600))
		argv := []string{"wrk", "-t1", fmt.Sprintf("-c%d", conns), fmt.Sprintf("-d%ds", seconds), "--timeout", "5s", "-s", file}
		return s.onLoadCores(append(argv, s.request(t)...)...), parseWRK
	})
}

func parseWRK(out string) (*Figures, error) {
	_, text, found := strings.Cut(out, "RESULT ")
	var r struct {
		Requests, Failed         uint64
		Microseconds             int
		P50, P95, P99, P999, Max float64 // microseconds
	}
	if !found {
		return nil, fmt.Errorf("wrk printed no result: %.200q", out)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("wrk printed %.200q: %w", text, err)
	}
	seconds := float64(max(r.Microseconds, 1)) / 1e6
	return &Figures{Summary: load.Summary{Answered: r.Requests, Failed: r.Failed, Seconds: seconds, Rate: float64(r.Requests) / seconds,
		Latency: load.Latency{P50: r.P50 / 1000, P95: r.P95 / 1000, P99: r.P99 / 1000, P999: r.P999 / 1000, Max: r.Max / 1000}}}, nil
}

// H2Load loads with GETs of one thread of h2load over HTTP/2. The latencies are in its log of requests.
func H2Load(t load.Template, conns, streams int, length time.Duration) Load {
	seconds := wholeSeconds(length)
	return tool(seconds, func(s *Stage) ([]string, func(string) (*Figures, error)) {
		file := filepath.Join(s.Rig.Dir, "h2load.log")
		_ = os.Remove(file) // h2load appends to it
		argv := []string{"h2load", "-t1", fmt.Sprintf("-c%d", conns), fmt.Sprintf("-m%d", streams), fmt.Sprintf("-D%d", seconds), "--log-file=" + file}
		return s.onLoadCores(append(argv, s.request(t)...)...), func(string) (*Figures, error) {
			log, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			defer log.Close()
			f, err := parseH2Load(log)
			f.Seconds, f.Rate = float64(seconds), float64(f.Answered)/float64(seconds)
			return f, err
		}
	})
}

// parseH2Load reads a log whose lines hold a start time, a status and a latency in microseconds.
func parseH2Load(log io.Reader) (*Figures, error) {
	f, all := new(Figures), load.NewHistogram()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var start, microseconds int64
		var status int
		if _, err := fmt.Sscan(lines.Text(), &start, &status, &microseconds); err != nil {
			return f, fmt.Errorf("h2load has logged %.100q: %w", lines.Text(), err)
		}
		if status/100 == 2 {
			f.Answered++
		} else {
			f.Failed++
		}
		load.Record(all, time.Duration(microseconds)*time.Microsecond)
	}
	f.Latency = load.LatencyOf(all)
	return f, lines.Err()
}
