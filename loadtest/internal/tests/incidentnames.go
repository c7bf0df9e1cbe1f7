package tests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/results"
)

// source may name an incident.
type source struct {
	name          string
	within, quiet time.Duration         // how soon it must name the incident, and be quiet after its end
	ask           func(s *scene) string // returns what names the incident now; "" if nothing does
}

// sources are all sources, the log first.
var sources = []source{
	{"log", namedWithin, quietWithin, (*scene).inLog},
	{"metrics", namedWithin, quietWithin, (*scene).inMetrics},
	{"alert", alertWithin, alertQuiet, (*scene).inAlerts},
	{"page", namedWithin, quietWithin, (*scene).onPage},
	{"explain", namedWithin, quietWithin, (*scene).explained},
}

// naming is when a source named an incident, and what it said first.
type naming struct {
	first, last time.Time // zero: it did not
	said        string
}

// names is what has named an incident.
type names struct {
	by         map[string]naming // by source
	misleading []string          // other alerts
	read       int               // bytes of the log that were looked at
}

// look notes which sources name the incident now, and which alerts mislead.
func (s *scene) look() {
	for _, source := range sources {
		if said := source.ask(s); said != "" {
			n, again := s.names.by[source.name]
			if !again {
				n = naming{first: time.Now(), said: said}
			}
			n.last = time.Now()
			s.names.by[source.name] = n
		}
	}
}

func (s *scene) inLog() string {
	text := s.logText()
	fresh := text[min(s.names.read, len(text)):]
	s.names.read = len(text)
	return quote(s.log, fresh)
}

// logText returns all that the adbuffers have logged.
func (s *scene) logText() string {
	if s.logFile != "" {
		b, _ := os.ReadFile(s.logFile)
		return string(b)
	}
	var all []byte
	for _, p := range s.processes {
		all = append(all, p.Log()...)
	}
	return string(all)
}

func (s *scene) inMetrics() string {
	if s.metric == "" {
		return ""
	}
	query := strings.ReplaceAll(s.metric, "$i", `instance="`+s.admin+`"`)
	text := said(incidentClient.Get("http://" + s.prom + "/api/v1/query?query=" + url.QueryEscape(query)))
	var v struct{ Data struct{ Result []any } }
	if json.Unmarshal([]byte(text), &v) != nil || len(v.Data.Result) == 0 {
		return ""
	}
	return strings.NewReplacer("{$i}", "", "$i,", "").Replace(s.metric)
}

// inAlerts returns an alert of this adbuffer, or of its route, that names the incident. It notes those that
// mislead.
func (s *scene) inAlerts() (named string) {
	all, _ := firing(s.prom) // without Prometheus nothing is named
	for _, labels := range all {
		name := labels["alertname"]
		switch {
		case labels["instance"] != s.admin && labels["route"] != s.route():
		case s.alert != "" && quote("^("+s.alert+")$", name) != "":
			named = name
		case s.also != "" && quote("^("+strings.TrimPrefix(s.also, "|")+")$", name) != "":
		case !slices.Contains(s.names.misleading, name):
			s.names.misleading = append(s.names.misleading, name)
		}
	}
	return named
}

func (s *scene) onPage() string {
	if s.page == "" {
		return ""
	}
	return quote(s.page, s.get("/overview")+"\n"+s.get("/pools"))
}

func (s *scene) explained() string {
	if s.explain == "" {
		return ""
	}
	return quote(s.explain, said(incidentClient.Post("http://"+s.admin+"/explain", "", strings.NewReader("GET /fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"))))
}

var incidentClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get sends a GET to the admin listener.
func (s *scene) get(path string) string { return said(incidentClient.Get("http://" + s.admin + path)) }

// said returns what a source says: its text, or the error of asking it.
func said(res *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err.Error()
	case res.StatusCode != http.StatusOK:
		return res.Status
	}
	return string(b)
}

// quote returns the part of a text around what an expression matches first: up to 40 bytes before it and 160
// behind its begin, within its line. It is "" if nothing matches.
func quote(expr, text string) string {
	if expr == "" {
		return ""
	}
	at := regexp.MustCompile(expr).FindStringIndex(text)
	if at == nil {
		return ""
	}
	before, behind := text[max(0, at[0]-40):at[0]], text[at[0]:min(len(text), max(at[1], at[0]+160))]
	before = before[strings.LastIndexByte(before, '\n')+1:]
	behind, _, _ = strings.Cut(behind, "\n")
	return strings.NewReplacer("|", "/", "`", "'").Replace(strings.TrimSpace(before + behind))
}

// judgeIncidents adds the tables and the verdicts.
func judgeIncidents(r *results.Report, scenes []*scene) {
	columns := []string{"incident"}
	for _, source := range sources {
		columns = append(columns, source.name)
	}
	t := r.Table("Seconds until each source named it / until it was quiet after the end", append(columns, "other alerts")...)
	said := r.Table("What each source said first", "incident", "source", "text")
	var unnamed, misled, loud []string
	for _, s := range scenes {
		cells := []any{s.name}
		named := 0
		for _, source := range sources {
			n, found := s.names.by[source.name]
			if !found {
				cells = append(cells, "–")
				continue
			}
			cells = append(cells, fmt.Sprintf("%.0f / %.0f", n.first.Sub(s.began).Seconds(), max(0, n.last.Sub(s.ended).Seconds())))
			said.Add(nil, s.name, source.name, "`"+n.said+"`")
			limit := source.within
			if source.name == "log" && s.logAfter {
				limit += incidentLasts
			}
			if n.first.Sub(s.began) <= limit {
				named++
			}
			if n.last.Sub(s.ended) > source.quiet {
				loud = append(loud, s.name+": "+source.name)
			}
		}
		if named < cmp.Or(s.needs, 3) {
			unnamed = append(unnamed, s.name)
		}
		if len(s.names.misleading) > 0 {
			misled = append(misled, s.name+": "+strings.Join(s.names.misleading, " "))
		}
		t.Add(nil, append(cells, strings.Join(s.names.misleading, " "))...)
	}
	for _, p := range []struct {
		text   string
		broken []string
	}{
		{"each cause is named by at least three of the five within 15 s, by alerts within 120 s", unnamed},
		{"no alert misleads", misled},
		{"all are quiet within 60 s of the end, alerts within 180 s", loud},
	} {
		words := "All did."
		if len(p.broken) > 0 {
			words = "Not so: " + strings.Join(p.broken, "; ") + "."
		}
		r.Promise(p.text, len(p.broken) == 0, nil, "%s", words)
	}
}
