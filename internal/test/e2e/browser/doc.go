// Package browser has the tests that run a real Chromium: the admin page, and a browser's HTTP/2.
package browser
