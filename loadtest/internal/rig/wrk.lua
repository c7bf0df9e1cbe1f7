done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\nRESULT {"requests":%d,"microseconds":%d,"failed":%d,"p50":%f,"p95":%f,"p99":%f,"p999":%f,"max":%f}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99), latency:percentile(99.9), latency.max))
end
