namespace gpipe {}
