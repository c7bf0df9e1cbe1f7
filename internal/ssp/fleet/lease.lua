-- One replica calls for tokens of one SSP. Redis runs one call after the other.
-- Only Redis' clock counts.
--
-- KEYS[1] is a hash: the field "bucket", and a field for each replica.
--   bucket   the tokens; when it was last filled; the share of replicas that are
--            not known yet; until when that share stays reserved; the even part:
--            the tokens so far of a replica that always lacked some
--   replica  the number of its last call; when that was; when its lease ends; the
--            tokens that it then had; the tokens that its traffic needed and that
--            it did not get; the rate at which it sends; its share; the even part
--            at that time
-- Times are milliseconds, rates are tokens a millisecond.
--
-- Three rules bound the requests of all replicas together:
--   1. The tokens in the bucket, and the leased tokens that were not reported as
--      spent, are at most the burst. At this number, nothing flows in.
--   2. A replica whose lease has ended counts as alone: it sends at its share. So
--      its share does not flow in, until the replica times out (ARGV[11]).
--   3. If no replica is known but the caller has had a share before, Redis was away
--      or has lost its data. Then the other replicas count as alone too.
local limit, burst = ARGV[1] / 1000, tonumber(ARGV[2])
local me, call = ARGV[3], tonumber(ARGV[4])
local keep, back = tonumber(ARGV[5]), tonumber(ARGV[6]) -- tokens that it keeps, and that it gives back
local need, want = tonumber(ARGV[7]), tonumber(ARGV[8]) -- tokens for its traffic; the same with a reserve
local used, share = ARGV[9] / 1000, ARGV[10] / 1000     -- the rate at which it sends; its last share, 0 = none yet
local timeout, valid = tonumber(ARGV[11]), tonumber(ARGV[12])

local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000

-- The five numbers of the bucket, or the eight of a replica.
local function numbers(text)
  local a, b, c, d, e, f, g, h = string.match(text, '(%S+) (%S+) (%S+) (%S+) (%S+) ?(%S*) ?(%S*) ?(%S*)')
  return {a + 0, b + 0, c + 0, d + 0, e + 0, tonumber(f), tonumber(g), tonumber(h)}
end

local function put(field, format, ...)
  redis.call('HSET', KEYS[1], field, string.format(format, ...))
end
local replica = '%.0f %.3f %.3f %.9g %.9g %.12g %.12g %.15g'

local state = redis.call('HGET', KEYS[1], 'bucket')
local bucket = state and numbers(state)
local tokens, at, others, gone, even = burst, now, 0, 0, 0
if bucket then
  tokens, at, others, gone = bucket[1], math.min(bucket[2], now), bucket[3], math.min(bucket[4], now + timeout)
  even = bucket[5]
end

-- The other replicas.
local mine                           -- the caller's record
local alive, leased = 1, 1           -- replicas; replicas with a valid lease; both with the caller
local out, alone, sent = 0, 0, used  -- leased tokens; requests sent without a lease; rate of replicas with a lease
local kept, short = 0, {}            -- shares of replicas whose lease has ended; records of replicas that lack tokens
local records = redis.call('HGETALL', KEYS[1])
for i = 1, #records, 2 do
  local id = records[i]
  if id ~= 'bucket' then
    local r = numbers(records[i + 1])
    if r[2] > now then -- Redis' clock was put back
      r[2], r[3] = now, now + valid
      put(id, replica, unpack(r))
    end
    alone = alone + r[7] * math.max(0, math.min(now, r[2] + timeout) - math.max(at, r[3]))
    if now >= r[2] + timeout then
      redis.call('HDEL', KEYS[1], id)
    elseif id == me then
      if call <= r[1] then return redis.error_reply('STALE a later call was here first') end
      mine, out = r, out + r[4]
    else
      alive, out = alive + 1, out + r[4]
      if now > r[3] then
        kept = kept + r[7]
      else
        leased, sent = leased + 1, sent + r[6]
        if r[5] > 0 then short[#short + 1] = r end
      end
    end
  end
end
alone = alone + others * math.max(0, math.min(now, gone) - at)
burst = math.max(burst, 2 * alive) -- otherwise a replica could have no token

-- Tokens have flowed in since the last call. Each replica that lacks tokens gets
-- an even part of them, which stays in the bucket until it calls.
local before = tokens
tokens = tokens + math.max(0, limit * (now - at) - alone)
tokens = math.max(0, math.min(tokens, burst - out))
even = even + math.max(0, tokens - before) / (#short + 1)
local left = 0
for _, r in ipairs(short) do left = left + math.min(r[5], even - r[8]) end
if not mine then
  back = 0
  if share > 0 and alive == 1 then
    tokens, others, gone = 0, math.max(0, limit - share), now + timeout
  elseif share > 0 and now < gone then
    others = math.max(0, others - share) -- the caller is now known
  end
else
  tokens = tokens + math.max(0, math.min(back, mine[4] - keep))
end
if now < gone then kept = kept + others end

local ask = math.max(0, want - keep)
local granted = math.min(ask, math.floor(tokens - left))
local part = mine and math.min(ask, even - mine[8]) or 0
if left + part > tokens then -- the bucket has fewer tokens than all parts
  granted = math.min(ask, math.floor(tokens * part / (left + part)))
end
granted = math.max(0, granted)
tokens = tokens - granted

-- Its share is its own rate, and an even part of the rate that no replica uses. A
-- tenth of the limit is divided evenly, so that a replica without traffic has a
-- share too.
local free = math.max(0, limit - kept)
if sent > free then
  share = free * used / sent
else
  share = used + (free - sent) / leased
end
share = 0.9 * share + 0.1 * free / leased

put('bucket', '%.9g %.3f %.12g %.3f %.15g', tokens, now, others, gone, even)
put(me, replica, call, now, now + valid, keep + granted, math.max(0, need - keep - granted), used, share, even)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.min(2 * timeout + burst / limit, 86400000)))
return {granted, string.format('%.12g', share * 1000), alive}
