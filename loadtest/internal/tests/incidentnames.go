package tests

import (
	"cmp"
	"encoding/json"
	"errors"
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

// The sources that may name an incident.
const (
	byLog = iota
	byMetric
	byAlert
	byPage
	byExplain
	incidentSources
)

var sourceNames = [incidentSources]string{"log", "metrics", "alert", "page", "explain"}

// names is what has named an incident.
type names struct {
	first, last [incidentSources]time.Time // when each source named it; zero: it did not
	said        [incidentSources]string    // what it said first
	misleading  []string                   // other alerts
	read        int                        // bytes of the log that were looked at
}

var incidentClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get sends a GET to the admin listener.
func (s *scene) get(path string) (string, error) {
	return ask(incidentClient.Get("http://" + s.admin + path))
}

func ask(res *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(b), err
}

// said returns what a source says: its text, or the error of asking it.
func said(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
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

// look notes which sources name the incident now, and which alerts mislead.
func (s *scene) look() {
	now := time.Now()
	note := func(source int, said string) {
		if said == "" {
			return
		}
		s.names.last[source] = now
		if s.names.first[source].IsZero() {
			s.names.first[source], s.names.said[source] = now, said
		}
	}
	text := s.logText()
	fresh := text[min(s.names.read, len(text)):]
	s.names.read = len(text)
	note(byLog, quote(s.log, fresh))
	if s.page != "" {
		note(byPage, quote(s.page, said(s.get("/overview"))+"\n"+said(s.get("/pools"))))
	}
	if s.explain != "" {
		note(byExplain, quote(s.explain, said(ask(incidentClient.Post("http://"+s.admin+"/explain", "", strings.NewReader("GET /fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"))))))
	}
	if s.metric != "" {
		if s.query(strings.ReplaceAll(s.metric, "$i", `instance="`+s.admin+`"`)) {
			note(byMetric, strings.NewReplacer("{$i}", "", "$i,", "").Replace(s.metric))
		}
	}
	for _, name := range s.alerts() {
		switch {
		case s.alert != "" && quote("^("+s.alert+")$", name) != "":
			note(byAlert, name)
		case s.also == "" || quote("^("+strings.TrimPrefix(s.also, "|")+")$", name) == "":
			if !slices.Contains(s.names.misleading, name) {
				s.names.misleading = append(s.names.misleading, name)
			}
		}
	}
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

// query reports whether a query has a result.
func (s *scene) query(expr string) bool {
	var v struct{ Data struct{ Result []any } }
	text, err := ask(incidentClient.Get("http://" + s.prom + "/api/v1/query?query=" + url.QueryEscape(expr)))
	return err == nil && json.Unmarshal([]byte(text), &v) == nil && len(v.Data.Result) > 0
}

// alerts returns the names of the alerts of this adbuffer, or of its route, that fire.
func (s *scene) alerts() (names []string) {
	var v struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	text, err := ask(incidentClient.Get("http://" + s.prom + "/api/v1/alerts"))
	if err != nil || json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	for _, a := range v.Data.Alerts {
		if a.State == "firing" && (a.Labels["instance"] == s.admin || a.Labels["route"] == s.route()) {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// judgeIncidents adds the table and the verdicts.
func judgeIncidents(r *results.Report, scenes []*scene) {
	columns := []string{"incident"}
	for _, name := range sourceNames {
		columns = append(columns, name)
	}
	t := r.Table("Seconds until each source named it / until it was quiet after the end", append(columns, "other alerts")...)
	var unnamed, misled, loud []string
	for _, s := range scenes {
		cells := []any{s.name}
		named := 0
		for i := range sourceNames {
			cells = append(cells, s.cell(i))
			limit, quiet := namedWithin, quietWithin
			if i == byAlert {
				limit, quiet = alertWithin, alertQuiet
			}
			if i == byLog && s.logAfter {
				limit += incidentLasts
			}
			if !s.names.first[i].IsZero() && s.names.first[i].Sub(s.began) <= limit {
				named++
			}
			if s.names.last[i].Sub(s.ended) > quiet {
				loud = append(loud, s.name+": "+sourceNames[i])
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
	said := r.Table("What each source said first", "incident", "source", "text")
	for _, s := range scenes {
		for i, text := range s.names.said {
			if text != "" {
				said.Add(nil, s.name, sourceNames[i], "`"+text+"`")
			}
		}
	}
	r.Promise("each cause is named by at least three of the five within 15 s, by alerts within 120 s", len(unnamed) == 0, nil, "%s", orNone(unnamed))
	r.Promise("no alert misleads", len(misled) == 0, nil, "%s", orNone(misled))
	r.Promise("all are quiet within 60 s of the end, alerts within 180 s", len(loud) == 0, nil, "%s", orNone(loud))
}

func orNone(broken []string) string {
	if len(broken) == 0 {
		return "All did."
	}
	return "Not so: " + strings.Join(broken, "; ") + "."
}

// cell shows when a source named the incident, and when it was quiet again.
func (s *scene) cell(source int) string {
	if s.names.first[source].IsZero() {
		return "–"
	}
	return fmt.Sprintf("%.0f / %.0f", s.names.first[source].Sub(s.began).Seconds(), max(0, s.names.last[source].Sub(s.ended).Seconds()))
}
