-- What a script finds: the functions of Lua that reach nothing outside, and `redis`. It gets the parts that are written
-- in Rust, and returns what these need: to bind the function that executes commands, the tables, and a runner.
local parts = ...
local is_stopped, null = parts.is_stopped, parts.null
local freeze = table.freeze
local execute

-- A script is stopped at loops and calls, so no function of a library may take long by itself. What Lua 5.1 does not have
-- goes; the rest is bounded.
for _, name in { "clear", "clone", "create", "find", "freeze", "isfrozen", "move", "pack", "unpack" } do
    table[name] = nil
end
for _, name in { "pack", "packsize", "split", "unpack" } do
    string[name] = nil
end

local find, rep, sort = string.find, string.rep, table.sort

function string.find(text, pattern, ...)
    if type(text) == "string" and type(pattern) == "string" and #text * #pattern > 2 ^ 30 then
        error("the search would take too long", 2)
    end
    return find(text, pattern, ...)
end

function string.rep(text, n)
    return if text == "" then "" else rep(text, n)
end

local function is_less(a, b)
    return a < b
end

function table.sort(values, is_before)
    return sort(values, is_before or is_less)
end

-- What a function in Rust finds wrong comes as its second result.
local function raising(f)
    return function(...)
        local result, problem = f(...)
        if problem then
            error(problem, 0)
        end
        return result
    end
end

-- A script that is to end does, whatever it catches.
local function checked(...)
    if is_stopped() then
        error("the script was stopped", 0)
    end
    return ...
end

local function protected(f, ...)
    return checked(pcall(f, ...))
end

local function protected_with(f, handler, ...)
    return checked(xpcall(f, handler, ...))
end

local function reply_field(name)
    return function(text)
        if type(text) ~= "string" then
            return { err = "ERR wrong number or type of arguments" }
        end
        return { [name] = text }
    end
end

local function error_reply(text)
    local reply = reply_field("err")(text)
    local message = string.gsub(reply.err, "^%-", "")
    if not string.find(message, " ", 1, true) then
        message = "ERR " .. message
    end
    return { err = message }
end

local function nothing()
    return true
end

local redis = freeze({
    call = function(...)
        local reply = execute(...)
        if type(reply) == "table" and reply.err then
            error(reply, 0)
        end
        return reply
    end,
    pcall = function(...)
        return execute(...)
    end,
    error_reply = error_reply,
    status_reply = reply_field("ok"),
    sha1hex = raising(parts.sha1hex),
    log = nothing,
    setresp = function(version)
        if version ~= 2 then
            error("scripts get replies of RESP version 2", 0)
        end
    end,
    replicate_commands = nothing,
    set_repl = nothing,
    REPL_NONE = 0,
    REPL_AOF = 1,
    REPL_SLAVE = 2,
    REPL_REPLICA = 2,
    REPL_ALL = 3,
    LOG_DEBUG = 0,
    LOG_VERBOSE = 1,
    LOG_NOTICE = 2,
    LOG_WARNING = 3,
})

local function signed(word)
    return if word >= 0x80000000 then word - 0x100000000 else word
end

local function in_bits(f)
    return function(...)
        return signed(f(...))
    end
end

local bit = freeze({
    tobit = in_bits(bit32.band),
    band = in_bits(bit32.band),
    bor = in_bits(bit32.bor),
    bxor = in_bits(bit32.bxor),
    bnot = in_bits(bit32.bnot),
    lshift = in_bits(bit32.lshift),
    rshift = in_bits(bit32.rshift),
    arshift = in_bits(bit32.arshift),
    rol = in_bits(bit32.lrotate),
    ror = in_bits(bit32.rrotate),
    tohex = function(word)
        return string.format("%08x", bit32.band(word))
    end,
})

local names = {
    assert = assert,
    error = error,
    getmetatable = getmetatable,
    ipairs = ipairs,
    next = next,
    pairs = pairs,
    pcall = protected,
    rawequal = rawequal,
    rawget = rawget,
    rawset = rawset,
    select = select,
    setmetatable = setmetatable,
    tonumber = tonumber,
    tostring = tostring,
    type = type,
    unpack = unpack,
    xpcall = protected_with,
    _VERSION = _VERSION,
    math = math,
    os = freeze({ clock = os.clock }),
    string = string,
    table = table,
    bit = bit,
    cjson = freeze({ encode = raising(parts.encode), decode = raising(parts.decode), null = null }),
    redis = redis,
    server = redis,
}

setmetatable(names, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})

return {
    names = names,
    environment = setmetatable({}, {
        __index = names,
        __newindex = function(_, name)
            error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
        end,
        __metatable = false,
    }),
    bind = function(f)
        execute = f
    end,
    run = function(script)
        return pcall(script)
    end,
}
