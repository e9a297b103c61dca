function love.conf(t)
  t.identity = "heed-attention"
  t.version = "11.4"
  t.window.title = "heed: attention, live"
  t.window.width, t.window.height = 1180, 720
  t.window.msaa = 4
  t.modules.physics, t.modules.audio, t.modules.sound, t.modules.joystick = false, false, false, false
end
