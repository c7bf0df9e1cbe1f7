package admin

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"adbuffer/internal/testsupport"
)

// promQL queries the Prometheus at a URL: all series of an expression, and the state of its rules.
type promQL struct {
	t   testing.TB
	url string
}

// sample is one series of a result.
type sample struct {
	labels map[string]string
	value  float64
}

func (p promQL) get(path string, v any) {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}
	res, err := client.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s, %v: %s", path, res.Status, err, body)
	}
}

// all returns the current values of an expression without NaN, which is the quantile of no
// observations.
func (p promQL) all(expr string) (samples []sample) {
	p.t.Helper()
	var v struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	p.get("/api/v1/query?query="+url.QueryEscape(expr), &v)
	for _, r := range v.Data.Result {
		if n, err := strconv.ParseFloat(r.Value[1].(string), 64); err == nil && !math.IsNaN(n) {
			samples = append(samples, sample{r.Metric, n})
		}
	}
	return samples
}

// rules returns the expressions of all rules by their names. Prometheus must have evaluated each of
// them without an error.
func (p promQL) rules() (recorded, alerts map[string]string) {
	p.t.Helper()
	recorded, alerts = map[string]string{}, map[string]string{}
	testsupport.Eventually(p.t, "every rule was evaluated", func() bool {
		var v struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Query, Type, Health, LastError string }
				}
			}
		}
		p.get("/api/v1/rules", &v)
		for _, g := range v.Data.Groups {
			for _, r := range g.Rules {
				switch {
				case r.Health == "unknown":
					return false
				case r.Health != "ok":
					p.t.Fatalf("%s: %s", r.Name, r.LastError)
				case r.Type == "recording":
					recorded[r.Name] = r.Query
				default:
					alerts[r.Name] = r.Query
				}
			}
		}
		return len(alerts) > 0
	})
	return recorded, alerts
}
