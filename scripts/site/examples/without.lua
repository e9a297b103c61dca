-- Entries without an example, and why.
local reasons = {}
for _, name in ipairs { "Bert.load", "Roberta.load", "DistilBert.load" } do
  reasons[name] = "it needs the files of a model, and encoders cannot be saved in this form"
end
return reasons
