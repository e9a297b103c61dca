function love.conf(t)
  t.window.width, t.window.height = 1180, 720
  t.modules.physics, t.modules.audio, t.modules.sound, t.modules.joystick = false, false, false, false
end
