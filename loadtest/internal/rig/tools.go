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
	"regexp"
	"strconv"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
)

// Load holds the measurements of a load tool. Of its requests, those without a 2xx response count as
// Failed.
type Load struct {
	load.Summary
	// Handshakes is the number of TCP handshakes, if the tool counts them.
	Handshakes int
}

// Doubts returns the reasons for not trusting l.
func (l Load) Doubts() []string {
	if l.Failed > 0 {
		return []string{fmt.Sprintf("%d of %d requests failed", l.Failed, l.Answered+l.Failed)}
	}
	if l.Answered == 0 {
		return []string{"no request was answered"}
	}
	return nil
}

// measure runs a load tool on cores. parse reads the measurements in its standard output.
func measure(ctx context.Context, cores string, parse func(out string) (Load, error), argv ...string) (Load, error) {
	if cores != "" {
		argv = append([]string{"taskset", "-c", cores}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(errs.Bytes())
		return Load{}, fmt.Errorf("%s: %w: %s", argv[0], err, text[max(0, len(text)-400):])
	}
	return parse(out.String())
}

// whole rounds the length of a load to seconds, as wrk and h2load take it.
func whole(length time.Duration) int { return max(1, int(length.Seconds()+0.5)) }

// timed runs a tool that loads for some seconds, and bounds the time that it needs. It appends the fields
// of t as -H options, and the URL with the path of t.
func timed(ctx context.Context, cores string, seconds int, baseURL string, t load.Template, parse func(out string) (Load, error), argv ...string) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+time.Minute)
	defer cancel()
	for _, f := range t.Headers {
		argv = append(argv, "-H", f.Name+": "+f.Value)
	}
	return measure(ctx, cores, parse, append(argv, baseURL+load.Fill(t.Path, 1))...)
}

// AB runs ApacheBench with n requests on c connections.
func AB(ctx context.Context, url string, n, c int, cores string, flags ...string) (Load, error) {
	// -l accepts responses of different lengths. -r counts a socket error and continues. -q prints no
	// progress.
	argv := append([]string{"ab", "-q", "-r", "-l", "-n", strconv.Itoa(n), "-c", strconv.Itoa(c)}, flags...)
	return measure(ctx, cores, parseAB, append(argv, url)...)
}

// abLine matches a figure of ab, such as "Complete requests:      100" or "  99%      7".
var abLine = regexp.MustCompile(`(?m)^ *([\w -]+:|\d+%) +(\d[\d.]*)`)

func parseAB(out string) (Load, error) {
	value := map[string]float64{}
	for _, m := range abLine.FindAllStringSubmatch(out, -1) {
		value[m[1]], _ = strconv.ParseFloat(m[2], 64) // the expression matches only digits
	}
	complete, found := value["Complete requests:"]
	if !found {
		return Load{}, fmt.Errorf("ab printed no result: %.200q", out)
	}
	failed := value["Failed requests:"] + value["Non-2xx responses:"] + value["Write errors:"]
	return Load{Summary: load.Summary{Answered: uint64(complete - failed), Failed: uint64(failed), Rate: value["Requests per second:"], Seconds: value["Time taken for tests:"],
		Latency: load.Latency{P50: value["50%"], P95: value["95%"], P99: value["99%"], Max: value["100%"]}}}, nil
}

// wrkScript makes wrk print its results as JSON.
//
//go:embed wrk.lua
var wrkScript string

// WRK sends GETs with one thread of wrk for length, rounded to seconds. It writes its script to dir.
func WRK(ctx context.Context, dir, baseURL string, t load.Template, conns int, length time.Duration, cores string) (Load, error) {
	file := filepath.Join(dir, "wrk.lua")
	if err := os.WriteFile(file, []byte(wrkScript), 0o600); err != nil {
		return Load{}, err
	}
	seconds := whole(length)
	return timed(ctx, cores, seconds, baseURL, t, parseWRK, "wrk", "-t1", fmt.Sprintf("-c%d", conns), fmt.Sprintf("-d%ds", seconds), "--timeout", "5s", "-s", file)
}

func parseWRK(out string) (Load, error) {
	_, text, found := strings.Cut(out, "RESULT ")
	var r struct {
		Requests, Failed    uint64
		Microseconds        int
		P50, P99, P999, Max float64 // microseconds
	}
	if !found {
		return Load{}, fmt.Errorf("wrk printed no result: %.200q", out)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Load{}, fmt.Errorf("wrk printed %.200q: %w", text, err)
	}
	seconds := float64(max(r.Microseconds, 1)) / 1e6
	return Load{Summary: load.Summary{Answered: r.Requests, Failed: r.Failed, Seconds: seconds, Rate: float64(r.Requests) / seconds,
		Latency: load.Latency{P50: r.P50 / 1000, P99: r.P99 / 1000, P999: r.P999 / 1000, Max: r.Max / 1000}}}, nil
}

// H2Load sends GETs over HTTP/2 with one thread of h2load for length, rounded to seconds. h2load writes
// its log of requests to dir. The log holds the latencies.
func H2Load(ctx context.Context, dir, baseURL string, t load.Template, conns, streams int, length time.Duration, cores string) (Load, error) {
	file := filepath.Join(dir, "h2load.log")
	_ = os.Remove(file) // h2load appends to it
	seconds := whole(length)
	read := func(string) (Load, error) {
		log, err := os.Open(file)
		if err != nil {
			return Load{}, err
		}
		defer log.Close()
		l, err := parseH2Load(log)
		l.Seconds, l.Rate = float64(seconds), float64(l.Answered)/float64(seconds)
		return l, err
	}
	return timed(ctx, cores, seconds, baseURL, t, read, "h2load", "-t1", fmt.Sprintf("-c%d", conns), fmt.Sprintf("-m%d", streams), fmt.Sprintf("-D%d", seconds), "--log-file="+file)
}

// parseH2Load reads a log whose lines hold a start time, a status and a latency in microseconds.
func parseH2Load(log io.Reader) (l Load, err error) {
	all := load.NewHistogram()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var start, microseconds int64
		var status int
		if _, err := fmt.Sscan(lines.Text(), &start, &status, &microseconds); err != nil {
			return l, fmt.Errorf("h2load has logged %.100q: %w", lines.Text(), err)
		}
		if status/100 == 2 {
			l.Answered++
		} else {
			l.Failed++
		}
		load.Record(all, time.Duration(microseconds)*time.Microsecond)
	}
	l.Latency = load.LatencyOf(all)
	return l, lines.Err()
}

// Curl sends n GETs one after the other from one curl process. url must not contain brackets.
func Curl(ctx context.Context, url string, n int, close bool) (Load, error) {
	argv := []string{"curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n"}
	if close {
		argv = append(argv, "-H", "Connection: close")
	}
	start := time.Now()
	return measure(ctx, "", func(out string) (l Load, err error) {
		l.Seconds = time.Since(start).Seconds()
		for line := range strings.Lines(out) {
			status, connects, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(status, "2") {
				l.Answered++
			}
			c, _ := strconv.Atoi(connects)
			l.Handshakes += c
		}
		l.Failed = uint64(n) - l.Answered
		return l, nil
	}, append(argv, fmt.Sprintf("%s&n=[1-%d]", url, n))...)
}

//go:embed sequence.js
var nodeScript string

// Node sends n GETs one after the other from one Node process, with or without a keep-alive agent.
func Node(ctx context.Context, url string, n int, close bool) (Load, error) {
	return measure(ctx, "", func(out string) (l Load, err error) {
		if err := json.Unmarshal([]byte(out), &l); err != nil {
			return l, fmt.Errorf("node printed %.200q: %w", out, err)
		}
		l.Failed = uint64(n) - l.Answered
		return l, nil
	}, "node", "-e", nodeScript, url, strconv.Itoa(n), strconv.FormatBool(!close))
}
