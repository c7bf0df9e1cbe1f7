package tests

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

func TestOnlyTheExactResponseOfTheUpstreamPasses(t *testing.T) {
	body := load.ConstantBody(1000)
	check := func(addr string, encrypted bool) error {
		return forwards(t.Context(), &stage.Stage{Addr: addr, TLS: encrypted}, stage.Presets()["ad"], body)
	}
	up, err := load.StartConstant("127.0.0.1:0", body)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	if err := check(up.Addr(), false); err != nil {
		t.Errorf("the upstream itself: %v", err)
	}
	json := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}
	s := httptest.NewTLSServer(http.HandlerFunc(json))
	if err := check(strings.TrimPrefix(s.URL, "https://"), true); err != nil {
		t.Errorf("over TLS: %v", err)
	}
	s.Close()
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
		if err := check(strings.TrimPrefix(s.URL, "http://"), false); err == nil {
			t.Errorf("%s passed", name)
		}
		s.Close()
	}
}

func TestRequestsThatFailVoidARowOrOneMeasurement(t *testing.T) {
	body := load.ConstantBody(1000)
	up, err := load.StartConstant("127.0.0.1:0", body)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	c := &comparison{request: stage.Presets()["ad"], body: body}
	failing := c.sound(func(context.Context, *stage.Stage) (*stage.Sample, error) {
		return &stage.Sample{Values: stage.Values{"failed": 3, "answered": 97}}, nil
	})
	at := &stage.Stage{Addr: up.Addr()}
	if s, err := failing(t.Context(), at); err != nil || s.Void == "" {
		t.Errorf("%+v, %v: want a void row", s, err)
	}
	if s, err := unlessVoid(failing)(t.Context(), at); err != nil || s.Void != "" || s.Values != nil || len(s.Doubts) != 1 {
		t.Errorf("%+v, %v: want no values, and a doubt", s, err)
	}
	hanging := c.sound(func(context.Context, *stage.Stage) (*stage.Sample, error) { return nil, errors.New("signal: killed") })
	if s, err := hanging(t.Context(), at); err != nil || s.Void != "signal: killed" {
		t.Errorf("%+v, %v: want a void row", s, err)
	}
}
