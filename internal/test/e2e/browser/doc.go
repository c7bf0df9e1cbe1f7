// Package browser has the tests that run a real Chromium: the admin page, a browser's HTTP/2, and an auction of
// Prebid.js. It also makes README's picture of the admin page.
package browser
